// Sixty-four values live at once: with 32 registers a thread they cannot stay there.
extern "C" __global__ void spill(float* c) {
  float v[64];
  for (int i = 0; i < 64; i++) v[i] = c[i * 32 + threadIdx.x];
  __syncthreads();
  for (int j = 0; j < 64; j++) {
    float t = 0;
    for (int i = 0; i < 64; i++) t += v[i] * v[(i + j) % 64];
    c[4096 + j * 32 + threadIdx.x] = t;
  }
}
