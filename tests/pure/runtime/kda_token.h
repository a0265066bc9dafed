/* What both kernels share: the dtypes, indexing by strides, and one token of the recurrence. */
#include <math.h>
#include <stdint.h>
#include <string.h>

static float from_bf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}
static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 64);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#define BF16_LOAD(x) from_bf16(x)
#define BF16_STORE(x) to_bf16(x)
#define F32_LOAD(x) (x)
#define F32_STORE(x) (x)
#define F16_LOAD(x) ((float)(x))
#define F16_STORE(x) ((_Float16)(x))
#define BF16_TYPE uint16_t
#define F32_TYPE float
#define F16_TYPE _Float16
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
typedef JOIN(Q_DTYPE, _TYPE) q_t;
typedef JOIN(G_DTYPE, _TYPE) g_t;
typedef JOIN(BETA_DTYPE, _TYPE) beta_t;
typedef JOIN(STATE_DTYPE, _TYPE) state_t;
#define LOAD_Q JOIN(Q_DTYPE, _LOAD)
#define STORE_Q JOIN(Q_DTYPE, _STORE)
#define LOAD_G JOIN(G_DTYPE, _LOAD)
#define LOAD_BETA JOIN(BETA_DTYPE, _LOAD)
#define LOAD_STATE JOIN(STATE_DTYPE, _LOAD)
#define STORE_STATE JOIN(STATE_DTYPE, _STORE)

#define STRIDES2(x) int64_t x##_0, int64_t x##_1
#define STRIDES3(x) STRIDES2(x), int64_t x##_2
#define STRIDES4(x) STRIDES3(x), int64_t x##_3
#define AT3(x, a, b, c) ((a) * x##_0 + (b) * x##_1 + (c) * x##_2)
#define AT4(x, a, b, c, d) (AT3(x, a, b, c) + (d) * x##_3)

/* The parameters that a precomputed gate does not have. */
#if GATE
#define GATE_POINTERS float *A_log, float *dt_bias,
#define GATE_STRIDES int64_t A_log_0, STRIDES2(dt_bias),
#define GATE_GIVEN int32_t has_dt_bias,
#define A_LOG(hv) A_log[(hv) * A_log_0]
#define BIAS(hv, i) (has_dt_bias ? dt_bias[(hv) * dt_bias_0 + (i) * dt_bias_1] : 0.0f)
#else
#define GATE_POINTERS
#define GATE_STRIDES
#define GATE_GIVEN
#define A_LOG(hv) 0.0f
#define BIAS(hv, i) 0.0f
#endif

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static float log_decay(float g, float A_log, float bias, float lower_bound) {
  if (GATE == 0) return g;
  float x = g + bias;
  if (GATE == 1) return -expf(A_log) * (x > 20.0f ? x : log1pf(expf(x)));
  return lower_bound * sigmoid(expf(A_log) * x);
}

static void unit(float *x, int64_t size) {
  float sum = 0.0f;
  for (int64_t i = 0; i < size; ++i) sum += x[i] * x[i];
  for (int64_t i = 0; i < size; ++i) x[i] /= sqrtf(sum + 1e-6f);
}

static void token(float *S, float *q, float *k, float *v, float *decay, float beta, float scale, int64_t K, int64_t V,
                  float *o) {
  if (L2NORM) {
    unit(q, K);
    unit(k, K);
  }
  if (SIGMOID) beta = sigmoid(beta) * (NEG_EIGVAL ? 2.0f : 1.0f);
  for (int64_t j = 0; j < V; ++j) o[j] = 0.0f;
  float read[256] = {0};
  for (int64_t i = 0; i < K; ++i)
    for (int64_t j = 0; j < V; ++j) {
      S[i * V + j] *= expf(decay[i]);
      read[j] += S[i * V + j] * k[i];
    }
  for (int64_t i = 0; i < K; ++i)
    for (int64_t j = 0; j < V; ++j) {
      S[i * V + j] += k[i] * beta * (v[j] - read[j]);
      o[j] += S[i * V + j] * (q[i] * scale);
    }
}
