def plan_cuda_kernel(request): raise NotImplementedError
