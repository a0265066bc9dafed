/* A CUDA driver that says yes to everything and prints what is launched: stands in for libcuda.so.1, so that
   cuda-bindings itself can be called on a machine without a GPU. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void *current = 0;

int cuInit(unsigned flags) { return flags != 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGet(int *device, int index) { return *device = index, 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return *value = 232448, attribute != 97; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)(0xC0l + device), 0; }
int cuCtxGetCurrent(void **context) { return *context = current, 0; }
int cuCtxPushCurrent_v2(void *context) { return current = context, 0; }
int cuCtxPopCurrent_v2(void **context) { return *context = current, current = 0, 0; }
int cuThreadExchangeStreamCaptureMode(int *mode) { return printf("mode %d\n", *mode), *mode = 0, 0; }
int cuModuleLoadData(void **module, const void *image) { return *module = (void *)1, memcmp(image, "\x7f" "ELF", 4); }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = (void *)2;
  return strcmp(name, "kernel") ? 500 : module != (void *)1;
}
int cuFuncLoad(void *function) { return function != (void *)2; }
int cuFuncGetAttribute(int *value, int attribute, void *function) { return *value = 256 + attribute, function != (void *)2; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return printf("set %d %d\n", attribute, value), 0; }
int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
  *offset = 8 * index, *size = index ? 4 : 8;
  return index > 1;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
  printf("launch %p grid %u %u %u block %u %u %u shared %u stream %p context %p: %lld %d %p\n", function, gx, gy, gz, bx,
         by, bz, shared, stream, current, *(long long *)parameters[0], *(int *)parameters[1], (void *)extra);
  fflush(stdout);
  return gx > 100 ? 700 : 0;
}
int cuGetErrorName(int error, const char **text) { return *text = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "E", 0; }
int cuGetErrorString(int error, const char **text) { return *text = "what the driver says", 0; }

static int nothing(void) { return 999; }

int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
  char newer[200];
  void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  snprintf(newer, sizeof newer, "%s_v2", name);
  *found = dlsym(self, newer);
  if (!*found) *found = dlsym(self, name);
  if (!*found) *found = (void *)nothing;
  if (status) *status = 0;
  return 0;
}
int cuGetProcAddress(const char *name, void **found, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, found, version, flags, 0);
}
