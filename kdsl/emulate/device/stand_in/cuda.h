// Stands for the header of the CUDA toolkit; device.h, which comes before the kernel text, has its contents.
#pragma once
