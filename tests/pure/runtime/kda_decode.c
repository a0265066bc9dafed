/* Decoding, token by token, one task for each row and value head; pool slots updated in place. */
#include "kda_token.h"

void kdsl_all(q_t *q, q_t *k, q_t *v, g_t *g, beta_t *beta, GATE_POINTERS state_t *pool,
              int64_t *ssm_state_indices, int64_t *num_accepted_tokens, q_t *o, float *state, STRIDES4(q), STRIDES4(k),
              STRIDES4(v), STRIDES4(g), STRIDES3(beta), GATE_STRIDES STRIDES4(pool), STRIDES4(o),
              int64_t T, int64_t W, int64_t SLOTS, int64_t H, int64_t HV, int64_t K, int64_t V, GATE_GIVEN
              int32_t has_indices, int32_t has_accepted, float scale, float lower_bound, int64_t begin, int64_t end) {
  for (int64_t task = begin; task < end; ++task) {
    int64_t n = task / HV, hv = task % HV, h = hv / (HV / H);
    int64_t column = has_accepted ? num_accepted_tokens[n] - 1 : 0;
    column = column < 0 ? 0 : column >= W ? W - 1 : column;
    int64_t source = has_indices ? ssm_state_indices[n * W + column] : n;
    int skipped = source < 0 || source >= SLOTS || (!SLOT_ZERO_IS_REAL && source == 0);
    float *S = state + task * K * V;
    for (int64_t i = 0; i < K && !skipped; ++i)
      for (int64_t j = 0; j < V; ++j) S[i * V + j] = LOAD_STATE(pool[AT4(pool, source, hv, i, j)]);
    for (int64_t t = 0; t < T; ++t) {
      float qt[256], kt[256], decay[256], vt[256], ot[256] = {0};
      for (int64_t i = 0; i < K; ++i) {
        qt[i] = LOAD_Q(q[AT4(q, n, t, h, i)]);
        kt[i] = LOAD_Q(k[AT4(k, n, t, h, i)]);
        decay[i] = log_decay(LOAD_G(g[AT4(g, n, t, hv, i)]), A_LOG(hv), BIAS(hv, i), lower_bound);
      }
      for (int64_t j = 0; j < V; ++j) vt[j] = LOAD_Q(v[AT4(v, n, t, hv, j)]);
      if (!skipped) token(S, qt, kt, vt, decay, LOAD_BETA(beta[AT3(beta, n, t, hv)]), scale, K, V, ot);
      for (int64_t j = 0; j < V; ++j) o[AT4(o, n, t, hv, j)] = STORE_Q(ot[j]);
      int64_t slot = !has_indices ? n : ssm_state_indices[n * W + (W > 1 ? t : 0)];
      if (skipped || slot < 0 || slot >= SLOTS || (!SLOT_ZERO_IS_REAL && slot == 0)) continue;
      for (int64_t i = 0; i < K; ++i)
        for (int64_t j = 0; j < V; ++j) pool[AT4(pool, slot, hv, i, j)] = STORE_STATE(S[i * V + j]);
    }
  }
}
