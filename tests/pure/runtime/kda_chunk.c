/* Kimi Delta Attention, token by token, one task for each sequence and value head; the state in the workspace.
   The dtypes and options come as macros: Q_BF16 ..., GATE 0 precomputed, 1 softplus, 2 bounded. */
#include "kda_token.h"

void kdsl_all(q_t *q, q_t *k, q_t *v, g_t *g, beta_t *beta, GATE_POINTERS state_t *initial_state,
              int64_t *cu_seqlens, q_t *o, state_t *final_state, float *state, STRIDES4(q), STRIDES4(k), STRIDES4(v),
              STRIDES4(g), STRIDES3(beta), GATE_STRIDES STRIDES4(initial_state), STRIDES4(o),
              STRIDES4(final_state), int64_t T, int64_t H, int64_t HV, int64_t K, int64_t V, GATE_GIVEN
              int32_t has_initial_state, int32_t has_cu_seqlens, int32_t has_final_state, float scale,
              float lower_bound, int64_t begin, int64_t end) {
  for (int64_t task = begin; task < end; ++task) {
    int64_t n = task / HV, hv = task % HV, h = hv / (HV / H);
    int64_t row = has_cu_seqlens ? 0 : n;
    int64_t first = has_cu_seqlens ? cu_seqlens[n] : 0, last = has_cu_seqlens ? cu_seqlens[n + 1] : T;
    float *S = state + task * K * V;
    for (int64_t i = 0; i < K; ++i)
      for (int64_t j = 0; j < V; ++j)
        S[i * V + j] = has_initial_state ? LOAD_STATE(initial_state[AT4(initial_state, n, hv, i, j)]) : 0.0f;
    for (int64_t t = first; t < last; ++t) {
      float qt[256], kt[256], decay[256], vt[256], ot[256];
      for (int64_t i = 0; i < K; ++i) {
        qt[i] = LOAD_Q(q[AT4(q, row, t, h, i)]);
        kt[i] = LOAD_Q(k[AT4(k, row, t, h, i)]);
        decay[i] = log_decay(LOAD_G(g[AT4(g, row, t, hv, i)]), A_LOG(hv), BIAS(hv, i), lower_bound);
      }
      for (int64_t j = 0; j < V; ++j) vt[j] = LOAD_Q(v[AT4(v, row, t, hv, j)]);
      token(S, qt, kt, vt, decay, LOAD_BETA(beta[AT3(beta, row, t, hv)]), scale, K, V, ot);
      for (int64_t j = 0; j < V; ++j) o[AT4(o, row, t, hv, j)] = STORE_Q(ot[j]);
    }
    if (has_final_state)
      for (int64_t i = 0; i < K; ++i)
        for (int64_t j = 0; j < V; ++j)
          final_state[AT4(final_state, n, hv, i, j)] = STORE_STATE(S[i * V + j]);
  }
}
