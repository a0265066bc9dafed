// PTX instructions that may stand in asm statements, one function each, named by the opcode with `_` for `.` and `::`.
// This file is the list of what the translation accepts; an opcode without a function here is refused by name.
// Operands are in the instruction's order, destinations as references, vectors flattened.
#pragma once

#include "mathematics.h"
#include "pointers.h"
#include "threads.h"

// What several instructions have in common.
namespace kdsl::parts {

using u64 = uint64_t;

template <class T> T shared_load(u32 address) {
  return Reference<T>(shared_region(address), generic_address(address)).get();
}
template <class T> void shared_store(u32 address, const T& value) {
  Reference<T>(shared_region(address), generic_address(address)) = value;
}
template <class T> T global_load(const Address& address) {
  return Reference<T>(address.region(), address.address()).get();
}
template <class T> void global_store(const Address& address, const T& value) {
  Reference<T>(address.region(), address.address()) = value;
}
inline Address at(const Address& address) { return address; }
inline Address at(u64 address) { return Address(address); }
template <class A> void cp_async(u32 to, const A& from, unsigned bytes, unsigned read) {
  const Address source = at(from);
  copy_async(to, source.region(), source.address(), bytes, read);
}
inline void ldmatrix_2(u32& d0, u32& d1, bool transposed, u32 row) {
  u32 d[2];
  load_matrices(d, 2, transposed, row);
  d0 = d[0], d1 = d[1];
}
inline void ldmatrix_4(u32& d0, u32& d1, u32& d2, u32& d3, bool transposed, u32 row) {
  u32 d[4];
  load_matrices(d, 4, transposed, row);
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}
inline void stmatrix_n(u32 row, bool transposed, std::initializer_list<u32> s) {
  store_matrices(s.begin(), unsigned(s.size()), transposed, row);
}
inline void mma_4_2(Element e, unsigned depth, f32* (&d)[4], std::initializer_list<u32> ab,
                    std::initializer_list<f32> c) {
  f32 result[4];
  const size_t of_b = ab.size() / 3;
  multiply(e, depth, ab.begin(), ab.begin() + 2 * of_b, c.begin(), result);
  for (int i = 0; i < 4; ++i) *d[i] = result[i];
}

}  // namespace kdsl::parts

namespace kdsl::ptx {

using namespace parts;

// --- shared and global memory -------------------------------------------------------------------------------------
inline void ld_shared_b16(u16& d, u32 a) { d = shared_load<u16>(a); }
inline void ld_shared_u16(u16& d, u32 a) { d = shared_load<u16>(a); }
inline void ld_shared_b32(u32& d, u32 a) { d = shared_load<u32>(a); }
inline void ld_shared_u32(u32& d, u32 a) { d = shared_load<u32>(a); }
inline void ld_shared_f32(f32& d, u32 a) { d = shared_load<f32>(a); }
inline void ld_shared_v2_b32(u32& x, u32& y, u32 a) { const uint2 v = shared_load<uint2>(a); x = v.x, y = v.y; }
inline void ld_shared_v2_u32(u32& x, u32& y, u32 a) { ld_shared_v2_b32(x, y, a); }
inline void ld_shared_v2_f32(f32& x, f32& y, u32 a) { const float2 v = shared_load<float2>(a); x = v.x, y = v.y; }
inline void ld_shared_v4_b32(u32& x, u32& y, u32& z, u32& w, u32 a) {
  const uint4 v = shared_load<uint4>(a);
  x = v.x, y = v.y, z = v.z, w = v.w;
}
inline void ld_shared_v4_u32(u32& x, u32& y, u32& z, u32& w, u32 a) { ld_shared_v4_b32(x, y, z, w, a); }
inline void ld_shared_v4_f32(f32& x, f32& y, f32& z, f32& w, u32 a) {
  const float4 v = shared_load<float4>(a);
  x = v.x, y = v.y, z = v.z, w = v.w;
}
inline void st_shared_b16(u32 a, u16 x) { shared_store(a, x); }
inline void st_shared_u16(u32 a, u16 x) { shared_store(a, x); }
inline void st_shared_b32(u32 a, u32 x) { shared_store(a, x); }
inline void st_shared_u32(u32 a, u32 x) { shared_store(a, x); }
inline void st_shared_f32(u32 a, f32 x) { shared_store(a, x); }
inline void st_shared_v2_b32(u32 a, u32 x, u32 y) { shared_store(a, uint2{x, y}); }
inline void st_shared_v2_u32(u32 a, u32 x, u32 y) { shared_store(a, uint2{x, y}); }
inline void st_shared_v2_f32(u32 a, f32 x, f32 y) { shared_store(a, float2{x, y}); }
inline void st_shared_v4_b32(u32 a, u32 x, u32 y, u32 z, u32 w) { shared_store(a, uint4{x, y, z, w}); }
inline void st_shared_v4_u32(u32 a, u32 x, u32 y, u32 z, u32 w) { shared_store(a, uint4{x, y, z, w}); }
inline void st_shared_v4_f32(u32 a, f32 x, f32 y, f32 z, f32 w) { shared_store(a, float4{x, y, z, w}); }

template <class A> void ld_global_b16(u16& d, const A& a) { d = global_load<u16>(at(a)); }
template <class A> void ld_global_u16(u16& d, const A& a) { d = global_load<u16>(at(a)); }
template <class A> void ld_global_b32(u32& d, const A& a) { d = global_load<u32>(at(a)); }
template <class A> void ld_global_f32(f32& d, const A& a) { d = global_load<f32>(at(a)); }
template <class A> void ld_global_nc_b32(u32& d, const A& a) { d = global_load<u32>(at(a)); }
template <class A> void ld_global_nc_f32(f32& d, const A& a) { d = global_load<f32>(at(a)); }
template <class A> void ld_global_v2_b32(u32& x, u32& y, const A& a) {
  const uint2 v = global_load<uint2>(at(a));
  x = v.x, y = v.y;
}
template <class A> void ld_global_v2_f32(f32& x, f32& y, const A& a) {
  const float2 v = global_load<float2>(at(a));
  x = v.x, y = v.y;
}
template <class A> void ld_global_v4_b32(u32& x, u32& y, u32& z, u32& w, const A& a) {
  const uint4 v = global_load<uint4>(at(a));
  x = v.x, y = v.y, z = v.z, w = v.w;
}
template <class A> void ld_global_v4_f32(f32& x, f32& y, f32& z, f32& w, const A& a) {
  const float4 v = global_load<float4>(at(a));
  x = v.x, y = v.y, z = v.z, w = v.w;
}
template <class A> void ld_global_nc_v4_b32(u32& x, u32& y, u32& z, u32& w, const A& a) {
  ld_global_v4_b32(x, y, z, w, a);
}
template <class A> void ld_global_nc_v4_f32(f32& x, f32& y, f32& z, f32& w, const A& a) {
  ld_global_v4_f32(x, y, z, w, a);
}
template <class A> void st_global_b16(const A& a, u16 x) { global_store(at(a), x); }
template <class A> void st_global_u16(const A& a, u16 x) { global_store(at(a), x); }
template <class A> void st_global_b32(const A& a, u32 x) { global_store(at(a), x); }
template <class A> void st_global_f32(const A& a, f32 x) { global_store(at(a), x); }
template <class A> void st_global_v2_b32(const A& a, u32 x, u32 y) { global_store(at(a), uint2{x, y}); }
template <class A> void st_global_v2_f32(const A& a, f32 x, f32 y) { global_store(at(a), float2{x, y}); }
template <class A> void st_global_v4_b32(const A& a, u32 x, u32 y, u32 z, u32 w) {
  global_store(at(a), uint4{x, y, z, w});
}
template <class A> void st_global_v4_f32(const A& a, f32 x, f32 y, f32 z, f32 w) {
  global_store(at(a), float4{x, y, z, w});
}

template <class A> void ld_global_u32(u32& d, const A& a) { ld_global_b32(d, a); }
template <class A> void ld_global_v2_u32(u32& x, u32& y, const A& a) { ld_global_v2_b32(x, y, a); }
template <class A> void ld_global_v4_u32(u32& x, u32& y, u32& z, u32& w, const A& a) { ld_global_v4_b32(x, y, z, w, a); }
template <class A> void ld_global_nc_v2_b32(u32& x, u32& y, const A& a) { ld_global_v2_b32(x, y, a); }
template <class A> void st_global_u32(const A& a, u32 x) { st_global_b32(a, x); }
template <class A> void st_global_v2_u32(const A& a, u32 x, u32 y) { st_global_v2_b32(a, x, y); }
template <class A> void st_global_v4_u32(const A& a, u32 x, u32 y, u32 z, u32 w) { st_global_v4_b32(a, x, y, z, w); }

// --- addresses and moves ------------------------------------------------------------------------------------------
inline void cvta_to_shared_u64(u64& d, const Address& a) { d = shared_address(a.address()); }
inline void cvta_to_shared_u64(u64& d, u64 a) { d = shared_address(a); }
inline void cvt_u32_u64(u32& d, u64 a) { d = u32(a); }
inline void mov_b32(u32& d, u32 a) { d = a; }
inline void mov_b32(u16& low, u16& high, u32 a) { low = u16(a), high = u16(a >> 16); }
inline void mov_u32(u32& d, u32 a) { d = a; }
inline void mov_s32(u32& d, u32 a) { d = a; }
inline void mov_f32(f32& d, f32 a) { d = a; }
inline void setp_ne_b32(bool& p, u32 a, u32 b) { p = a != b; }
inline void setp_ne_u32(bool& p, u32 a, u32 b) { p = a != b; }
inline void setp_ne_s32(bool& p, u32 a, u32 b) { p = a != b; }
inline void setp_eq_b32(bool& p, u32 a, u32 b) { p = a == b; }
inline void setp_eq_u32(bool& p, u32 a, u32 b) { p = a == b; }

// --- asynchronous copies ------------------------------------------------------------------------------------------
template <class A> void cp_async_ca_shared_global(u32 to, const A& from, u32 n) { cp_async(to, from, n, n); }
template <class A> void cp_async_ca_shared_global(u32 to, const A& from, u32 n, u32 read) { cp_async(to, from, n, read); }
template <class A> void cp_async_cg_shared_global(u32 to, const A& from, u32 n) { cp_async(to, from, n, n); }
template <class A> void cp_async_cg_shared_global(u32 to, const A& from, u32 n, u32 read) { cp_async(to, from, n, read); }
template <class A> void cp_async_ca_shared_global_L2_128B(u32 to, const A& from, u32 n) { cp_async(to, from, n, n); }
template <class A> void cp_async_cg_shared_global_L2_128B(u32 to, const A& from, u32 n) { cp_async(to, from, n, n); }
template <class A> void cp_async_ca_shared_global_L2_128B(u32 to, const A& from, u32 n, u32 read) {
  cp_async(to, from, n, read);
}
template <class A> void cp_async_cg_shared_global_L2_128B(u32 to, const A& from, u32 n, u32 read) {
  cp_async(to, from, n, read);
}
inline void cp_async_commit_group() { commit_copies(); }
inline void cp_async_wait_group(u32 pending) { wait_copies(pending); }
inline void cp_async_wait_all() { wait_all_copies(); }

// --- matrices -----------------------------------------------------------------------------------------------------
inline void ldmatrix_sync_aligned_m8n8_x1_shared_b16(u32& d, u32 row) { load_matrices(&d, 1, false, row); }
inline void ldmatrix_sync_aligned_m8n8_x1_trans_shared_b16(u32& d, u32 row) { load_matrices(&d, 1, true, row); }
inline void ldmatrix_sync_aligned_m8n8_x2_shared_b16(u32& d0, u32& d1, u32 row) { ldmatrix_2(d0, d1, false, row); }
inline void ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(u32& d0, u32& d1, u32 row) { ldmatrix_2(d0, d1, true, row); }
inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(u32& d0, u32& d1, u32& d2, u32& d3, u32 row) {
  ldmatrix_4(d0, d1, d2, d3, false, row);
}
inline void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(u32& d0, u32& d1, u32& d2, u32& d3, u32 row) {
  ldmatrix_4(d0, d1, d2, d3, true, row);
}
inline void stmatrix_sync_aligned_m8n8_x1_shared_b16(u32 row, u32 s) { stmatrix_n(row, false, {s}); }
inline void stmatrix_sync_aligned_m8n8_x1_trans_shared_b16(u32 row, u32 s) { stmatrix_n(row, true, {s}); }
inline void stmatrix_sync_aligned_m8n8_x2_shared_b16(u32 row, u32 s, u32 t) { stmatrix_n(row, false, {s, t}); }
inline void stmatrix_sync_aligned_m8n8_x2_trans_shared_b16(u32 row, u32 s, u32 t) { stmatrix_n(row, true, {s, t}); }
inline void stmatrix_sync_aligned_m8n8_x4_shared_b16(u32 row, u32 s, u32 t, u32 u, u32 v) {
  stmatrix_n(row, false, {s, t, u, v});
}
inline void stmatrix_sync_aligned_m8n8_x4_trans_shared_b16(u32 row, u32 s, u32 t, u32 u, u32 v) {
  stmatrix_n(row, true, {s, t, u, v});
}
inline void movmatrix_sync_aligned_m8n8_trans_b16(u32& d, u32 s) { d = transpose_matrix(s); }

inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(f32& d0, f32& d1, f32& d2, f32& d3, u32 a0, u32 a1,
                                                                u32 a2, u32 a3, u32 b0, u32 b1, f32 c0, f32 c1, f32 c2,
                                                                f32 c3) {
  f32* d[] = {&d0, &d1, &d2, &d3};
  mma_4_2(Element::bf16, 16, d, {a0, a1, a2, a3, b0, b1}, {c0, c1, c2, c3});
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(f32& d0, f32& d1, f32& d2, f32& d3, u32 a0, u32 a1,
                                                              u32 a2, u32 a3, u32 b0, u32 b1, f32 c0, f32 c1, f32 c2,
                                                              f32 c3) {
  f32* d[] = {&d0, &d1, &d2, &d3};
  mma_4_2(Element::f16, 16, d, {a0, a1, a2, a3, b0, b1}, {c0, c1, c2, c3});
}
inline void mma_sync_aligned_m16n8k8_row_col_f32_bf16_bf16_f32(f32& d0, f32& d1, f32& d2, f32& d3, u32 a0, u32 a1,
                                                               u32 b0, f32 c0, f32 c1, f32 c2, f32 c3) {
  f32* d[] = {&d0, &d1, &d2, &d3};
  mma_4_2(Element::bf16, 8, d, {a0, a1, b0}, {c0, c1, c2, c3});
}
inline void mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(f32& d0, f32& d1, f32& d2, f32& d3, u32 a0, u32 a1, u32 b0,
                                                             f32 c0, f32 c1, f32 c2, f32 c3) {
  f32* d[] = {&d0, &d1, &d2, &d3};
  mma_4_2(Element::f16, 8, d, {a0, a1, b0}, {c0, c1, c2, c3});
}
inline void mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(f32& d0, f32& d1, f32& d2, f32& d3, u32 a0, u32 a1,
                                                               u32 a2, u32 a3, u32 b0, u32 b1, f32 c0, f32 c1, f32 c2,
                                                               f32 c3) {
  f32* d[] = {&d0, &d1, &d2, &d3};
  mma_4_2(Element::tf32, 8, d, {a0, a1, a2, a3, b0, b1}, {c0, c1, c2, c3});
}
inline void mma_sync_aligned_m16n8k4_row_col_f32_tf32_tf32_f32(f32& d0, f32& d1, f32& d2, f32& d3, u32 a0, u32 a1,
                                                               u32 b0, f32 c0, f32 c1, f32 c2, f32 c3) {
  f32* d[] = {&d0, &d1, &d2, &d3};
  mma_4_2(Element::tf32, 4, d, {a0, a1, b0}, {c0, c1, c2, c3});
}

// --- arithmetic ---------------------------------------------------------------------------------------------------
inline void ex2_approx_f32(f32& d, f32 a) { d = exp2f(a); }
inline void ex2_approx_ftz_f32(f32& d, f32 a) { d = flushed(exp2f(flushed(a))); }
inline void lg2_approx_f32(f32& d, f32 a) { d = log2f(a); }
inline void lg2_approx_ftz_f32(f32& d, f32 a) { d = log2f(flushed(a)); }
inline void rcp_approx_f32(f32& d, f32 a) { d = 1.0f / a; }
inline void rcp_approx_ftz_f32(f32& d, f32 a) { d = flushed(1.0f / flushed(a)); }
inline void rsqrt_approx_f32(f32& d, f32 a) { d = rsqrtf(a); }
inline void rsqrt_approx_ftz_f32(f32& d, f32 a) { d = rsqrtf(flushed(a)); }
inline void sqrt_approx_f32(f32& d, f32 a) { d = sqrtf(a); }
inline void tanh_approx_f32(f32& d, f32 a) { d = tanhf(a); }
inline void xor_b32(u32& d, u32 a, u32 b) { d = a ^ b; }
inline void selp_u32(u32& d, u32 a, u32 b, bool p) { d = p ? a : b; }
inline void fma_rn_f32(f32& d, f32 a, f32 b, f32 c) { d = fmaf(a, b, c); }
// The first operand goes to the upper half.
inline void cvt_rn_bf16x2_f32(u32& d, f32 a, f32 b) { d = u32(bits_of_bfloat16(a)) << 16 | bits_of_bfloat16(b); }
inline void cvt_rn_f16x2_f32(u32& d, f32 a, f32 b) { d = u32(bits_of_half(a)) << 16 | bits_of_half(b); }
inline void cvt_rn_bf16_f32(u16& d, f32 a) { d = bits_of_bfloat16(a); }
inline void cvt_rn_f16_f32(u16& d, f32 a) { d = bits_of_half(a); }
inline void cvt_f32_f16(f32& d, u16 a) { d = value_of_half(a); }
inline void cvt_rna_tf32_f32(u32& d, f32 a) { d = tf32_of(a); }

// --- rendezvous and hints -----------------------------------------------------------------------------------------
inline void bar_sync(u32 barrier) {
  if (barrier != 0) outside_emulation("bar.sync of a barrier other than 0");
  block_barrier();
}
inline void bar_warp_sync(u32 lanes) { warp_barrier(lanes); }
template <class A> void prefetch_global_L2(const A&) {}
template <class A> void prefetch_global_L1(const A&) {}

}  // namespace kdsl::ptx
