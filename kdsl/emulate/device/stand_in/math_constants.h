// Stands for the header of the CUDA toolkit; device.h, which comes before the kernel text, has its contents.
#pragma once
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
