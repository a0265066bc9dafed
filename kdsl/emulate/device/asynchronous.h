// PTX instructions of Hopper's asynchronous side, as in ptx.h: mbarriers, bulk copies, wgmma, and what goes with them.
#pragma once

#include <tuple>
#include <utility>

#include "pointers.h"
#include "threads.h"

namespace kdsl::parts {

using u64 = uint64_t;

template <class A> void bulk_load(u32 to, const A& from, u32 bytes, u32 barrier) {
  const Address source(from);
  copy_bulk(to, source.region(), source.address(), bytes, barrier);
}
template <class A> void bulk_store(const A& to, u32 from, u32 bytes) {
  const Address target(to);
  store_bulk(target.region(), target.address(), from, bytes);
}

// Registers that a statement with a wgmma reads and writes: in the thread's own memory, as all accumulators are.
inline f32* accumulator(f32& own) { return &own; }
inline f32* accumulator(const Reference<f32>& own) {
  if (own.own() == nullptr) outside_emulation("a wgmma that accumulates in memory");
  return own.own();
}
template <class R> f32 of_product(R&& own) { return result_of(accumulator(own)); }
// A register whose value the statement does not take: what an earlier product left in it is gone.
template <class R> f32 before_product(R&& own) {
  result_of(accumulator(own));
  return no_result();
}
template <class R> void to_product(R&& own, const f32& value) { hold_result(accumulator(own), value); }

}  // namespace kdsl::parts

namespace kdsl::ptx {

using namespace parts;

// --- mbarriers ----------------------------------------------------------------------------------------------------
inline void mbarrier_init_shared_b64(u32 barrier, u32 count) { mbarrier_init(barrier, count); }
inline void mbarrier_init_shared_cta_b64(u32 barrier, u32 count) { mbarrier_init(barrier, count); }
inline void mbarrier_arrive_shared_b64(u32 barrier, u32 count = 1) { mbarrier_arrive(barrier, count); }
inline void mbarrier_arrive_shared_cta_b64(u32 barrier, u32 count = 1) { mbarrier_arrive(barrier, count); }
inline void mbarrier_expect_tx_shared_b64(u32 barrier, u32 bytes) { mbarrier_expect(barrier, bytes); }
inline void mbarrier_arrive_expect_tx_shared_b64(u32 barrier, u32 bytes) {
  mbarrier_expect(barrier, bytes);
  mbarrier_arrive(barrier, 1);
}
inline void mbarrier_arrive_expect_tx_shared_cta_b64(u32 barrier, u32 bytes) {
  mbarrier_arrive_expect_tx_shared_b64(barrier, bytes);
}
// A try that may wait: it comes back when the phase is over.
inline void mbarrier_try_wait_parity_shared_b64(bool& over, u32 barrier, u32 parity, u32 = 0) {
  mbarrier_wait(barrier, parity);
  over = true;
}
inline void mbarrier_try_wait_parity_shared_cta_b64(bool& over, u32 barrier, u32 parity, u32 = 0) {
  mbarrier_try_wait_parity_shared_b64(over, barrier, parity);
}
inline void mbarrier_try_wait_parity_acquire_cta_shared_cta_b64(bool& over, u32 barrier, u32 parity, u32 = 0) {
  mbarrier_try_wait_parity_shared_b64(over, barrier, parity);
}

// --- bulk copies --------------------------------------------------------------------------------------------------
template <class A>
void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(u32 to, const A& from, u32 bytes, u32 barrier) {
  bulk_load(to, from, bytes, barrier);
}
template <class A>
void cp_async_bulk_shared_cta_global_mbarrier_complete_tx_bytes(u32 to, const A& from, u32 bytes, u32 barrier) {
  bulk_load(to, from, bytes, barrier);
}
template <class A> void cp_async_bulk_global_shared_cta_bulk_group(const A& to, u32 from, u32 bytes) {
  bulk_store(to, from, bytes);
}
inline void cp_async_bulk_commit_group() { commit_bulk(); }
inline void cp_async_bulk_wait_group(u32 pending) { wait_bulk(pending); }
inline void cp_async_bulk_wait_group_read(u32 pending) { wait_bulk(pending); }

// --- wgmma --------------------------------------------------------------------------------------------------------
inline void wgmma_fence_sync_aligned() { fence_products(); }
inline void wgmma_commit_group_sync_aligned() { commit_products(); }
inline void wgmma_wait_group_sync_aligned(u32 pending) { wait_products(pending); }

// The operands of `wgmma.mma_async...m64nNk16.f32.bf16.bf16` in the instruction's order: N / 2 registers of d, four of
// a or its descriptor, the descriptor of b, whether d is added, both signs, and which operands are transposed.
template <unsigned N, class... Rest> void wgmma_bf16(Rest&&... rest) {
  auto all = std::forward_as_tuple(rest...);
  constexpr size_t count = sizeof...(Rest), of_d = N / 2;
  constexpr bool registers = count == of_d + 9;
  static_assert(registers || count == of_d + 7, "the operands of wgmma");
  f32 d[of_d];
  u32 a[4] = {};
  [&]<size_t... I>(std::index_sequence<I...>) { ((d[I] = std::get<I>(all)), ...); }(std::make_index_sequence<of_d>());
  u64 of_a = 0;
  if constexpr (registers) {
    [&]<size_t... I>(std::index_sequence<I...>) { ((a[I] = std::get<of_d + I>(all)), ...); }(std::make_index_sequence<4>());
  } else {
    of_a = std::get<of_d>(all);
  }
  constexpr size_t b = of_d + (registers ? 4 : 1);
  if (int(std::get<b + 2>(all)) != 1 || int(std::get<b + 3>(all)) != 1) outside_emulation("wgmma of a negated operand");
  const bool a_transposed = !registers && int(std::get<count - 2>(all)) != 0;
  multiply_warpgroup(N, d, registers ? a : nullptr, of_a, std::get<b>(all), bool(std::get<b + 1>(all)), a_transposed,
                     int(std::get<count - 1>(all)) != 0);
  [&]<size_t... I>(std::index_sequence<I...>) { ((std::get<I>(all) = d[I]), ...); }(std::make_index_sequence<of_d>());
}

// --- rendezvous, fences and hints ---------------------------------------------------------------------------------
inline void bar_sync(u32 barrier, u32 threads) { barrier_sync(barrier, threads); }
inline void bar_arrive(u32 barrier, u32 threads) { barrier_arrive(barrier, threads); }
// The PTX manual leaves open which lane it is; it is the same one each time.
inline void elect_sync(bool& elected, u32 lanes) {
  elected = own_lane() == unsigned(std::countr_zero(uint32_t(lanes)));
}
inline void fence_mbarrier_init_release_cluster() {}
inline void fence_proxy_async() { proxy_fence(); }
inline void fence_proxy_async_shared_cta() { proxy_fence(); }
inline void setmaxnreg_inc_sync_aligned_u32(u32) {}
inline void setmaxnreg_dec_sync_aligned_u32(u32) {}

}  // namespace kdsl::ptx
