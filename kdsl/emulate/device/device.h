// All that a translated kernel includes: CUDA's types, functions and keywords, as this machine's C++.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "asynchronous.h"
#include "interface.h"
#include "mathematics.h"
#include "numbers.h"
#include "pointers.h"
#include "ptx.h"
#include "threads.h"
#include "vectors.h"

// CUDA's keywords come last: system headers use some of them for themselves.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __restrict__
#define __align__(bytes) alignas(bytes)
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 9
