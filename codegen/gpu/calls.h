/* calls.h: the GPU drivers' functions that the host's text uses: field of bk_driver, parameters,
 * name in CUDA, in HIP, in the emulator; hip_none, cuda_none, emu_none: there is none. */
#define BK_DRIVER(X)                                                                               \
    X(init, (unsigned flags), cuInit, hipInit, emu_init)                                           \
    X(device_count, (int *count), cuDeviceGetCount, hipGetDeviceCount, emu_device_get_count)       \
    X(device_get, (int *device, int ordinal), cuDeviceGet, hipDeviceGet, emu_device_get)           \
    X(device_name, (char *name, int size, int device), cuDeviceGetName, hipDeviceGetName,          \
      emu_device_get_name)                                                                         \
    X(device_attribute, (int *value, int attribute, int device), cuDeviceGetAttribute,             \
      hipDeviceGetAttribute, emu_device_get_attribute)                                             \
    X(context_now, (void **context), cuCtxGetCurrent, hipCtxGetCurrent, emu_ctx_get_current)       \
    X(context_device, (int *device), cuCtxGetDevice, hipCtxGetDevice, emu_ctx_get_device)          \
    X(context_push, (void *context), cuCtxPushCurrent_v2, hipCtxPushCurrent, emu_ctx_push_current) \
    X(context_pop, (void **context), cuCtxPopCurrent_v2, hipCtxPopCurrent, emu_ctx_pop_current)    \
    X(primary_retain, (void **context, int device), cuDevicePrimaryCtxRetain,                      \
      hipDevicePrimaryCtxRetain, emu_device_primary_ctx_retain)                                    \
    X(primary_release, (int device), cuDevicePrimaryCtxRelease_v2, hipDevicePrimaryCtxRelease,     \
      emu_device_primary_ctx_release)                                                              \
    X(primary_state, (int device, unsigned *flags, int *active), cuDevicePrimaryCtxGetState,       \
      hipDevicePrimaryCtxGetState, emu_none)                                                       \
    X(module_load, (void **module, const void *image), cuModuleLoadData, hipModuleLoadData,        \
      emu_module_load_data)                                                                        \
    X(module_unload, (void *module), cuModuleUnload, hipModuleUnload, emu_module_unload)           \
    X(module_function, (void **function, void *module, const char *name), cuModuleGetFunction,     \
      hipModuleGetFunction, emu_module_get_function)                                               \
    X(function_attribute, (int *value, int attribute, void *function), cuFuncGetAttribute,         \
      hipFuncGetAttribute, emu_func_get_attribute)                                                 \
    X(function_set, (void *function, int attribute, int value), cuFuncSetAttribute, hip_none,      \
      emu_func_set_attribute)                                                                      \
    X(occupancy, (int *blocks, void *function, int threads, size_t shared),                        \
      cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                 \
      hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, emu_occupancy_max_active_blocks)         \
    X(launch,                                                                                      \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,        \
       unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **params),          \
      cuLaunchCooperativeKernel, hipModuleLaunchCooperativeKernel, emu_launch_cooperative_kernel)  \
    X(launch_clusters, (const void *config, void *function, void **params, void **extra),          \
      cuLaunchKernelEx, hip_no_launch, emu_launch_kernel_ex)                                       \
    X(occupancy_clusters, (int *clusters, void *function, const void *config),                     \
      cuOccupancyMaxActiveClusters, hip_no_clusters, emu_occupancy_max_active_clusters)            \
    X(alloc, (uint64_t * address, size_t bytes), cuMemAlloc_v2, hipMalloc, emu_mem_alloc)          \
    X(free, (uint64_t address), cuMemFree_v2, hipFree, emu_mem_free)                               \
    X(host_alloc, (void **memory, size_t bytes, unsigned flags), cuMemHostAlloc, hipHostMalloc,    \
      emu_mem_host_alloc)                                                                          \
    X(host_free, (void *memory), cuMemFreeHost, hipHostFree, emu_mem_free_host)                    \
    X(copy_in, (uint64_t to, const void *from, size_t bytes, void *stream), cuMemcpyHtoDAsync_v2,  \
      hipMemcpyHtoDAsync, emu_memcpy_htod_async)                                                   \
    X(copy_out, (void *to, uint64_t from, size_t bytes, void *stream), cuMemcpyDtoHAsync_v2,       \
      hipMemcpyDtoHAsync, emu_memcpy_dtoh_async)                                                   \
    X(copy_on, (uint64_t to, uint64_t from, size_t bytes, void *stream), cuMemcpyDtoDAsync_v2,     \
      hipMemcpyDtoDAsync, emu_memcpy_dtod_async)                                                   \
    X(fill, (uint64_t to, unsigned char value, size_t count, void *stream), cuMemsetD8Async,       \
      hipMemsetD8Async, emu_memset_d8_async)                                                       \
    X(stream_new, (void **stream, unsigned flags), cuStreamCreate, hipStreamCreateWithFlags,       \
      emu_stream_create)                                                                           \
    X(stream_free, (void *stream), cuStreamDestroy_v2, hipStreamDestroy, emu_stream_destroy)       \
    X(stream_wait, (void *stream), cuStreamSynchronize, hipStreamSynchronize,                      \
      emu_stream_synchronize)                                                                      \
    X(stream_behind, (void *stream, void *event, unsigned flags), cuStreamWaitEvent,               \
      hipStreamWaitEvent, emu_stream_wait_event)                                                   \
    X(event_new, (void **event, unsigned flags), cuEventCreate, hipEventCreateWithFlags,           \
      emu_event_create)                                                                            \
    X(event_free, (void *event), cuEventDestroy_v2, hipEventDestroy, emu_event_destroy)            \
    X(event_record, (void *event, void *stream), cuEventRecord, hipEventRecord, emu_event_record)  \
    X(event_wait, (void *event), cuEventSynchronize, hipEventSynchronize, emu_event_synchronize)   \
    X(event_query, (void *event), cuEventQuery, hipEventQuery, emu_event_query)                    \
    X(error_text, (int error, const char **text), cuGetErrorString, hipDrvGetErrorString,          \
      emu_get_error_string)

/* The same for what a driver may lack, which programs with products by a library call (library.h):
 * graphs; */
#define BK_GRAPH(X)                                                                                \
    X(capture, (void *stream, int mode), cuStreamBeginCapture_v2, hipStreamBeginCapture,           \
      emu_stream_begin_capture)                                                                    \
    X(captured, (void *stream, void **graph), cuStreamEndCapture, hipStreamEndCapture,             \
      emu_stream_end_capture)                                                                      \
    X(graph_make, (void **exec, void *graph, unsigned long long flags),                            \
      cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags, emu_graph_instantiate)            \
    X(graph_launch, (void *exec, void *stream), cuGraphLaunch, hipGraphLaunch, emu_graph_launch)   \
    X(graph_free, (void *exec), cuGraphExecDestroy, hipGraphExecDestroy, emu_graph_exec_destroy)   \
    X(captured_free, (void *graph), cuGraphDestroy, hipGraphDestroy, emu_graph_destroy)
/* and functions of that library. */
#define BK_BLAS(X)                                                                                 \
    X(create, (void **handle), cublasCreate_v2, rocblas_create_handle, emu_blas_create)            \
    X(destroy, (void *handle), cublasDestroy_v2, rocblas_destroy_handle, emu_blas_destroy)         \
    X(set_stream, (void *handle, void *stream), cublasSetStream_v2, rocblas_set_stream,            \
      emu_blas_set_stream)                                                                         \
    X(set_workspace, (void *handle, void *workspace, size_t bytes), cublasSetWorkspace_v2,         \
      rocblas_set_workspace, emu_blas_set_workspace)                                               \
    X(gemm,                                                                                        \
      (void *handle, int turn_a, int turn_b, int m, int n, int k, const float *alpha,              \
       const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc),    \
      cublasSgemm_v2, rocblas_sgemm, emu_blas_sgemm)                                               \
    X(gemm_batched,                                                                                \
      (void *handle, int turn_a, int turn_b, int m, int n, int k, const float *alpha,              \
       const float *a, int lda, long long next_a, const float *b, int ldb, long long next_b,       \
       const float *beta, float *c, int ldc, long long next_c, int batch),                         \
      cublasSgemmStridedBatched, rocblas_sgemm_strided_batched, emu_blas_sgemm_batched)            \
    X(gemm_typed,                                                                                  \
      (void *handle, int turn_a, int turn_b, int m, int n, int k, const void *alpha,               \
       const void *a, int type_a, int lda, long long next_a, const void *b, int type_b, int ldb,   \
       long long next_b, const void *beta, void *c, int type_c, int ldc, long long next_c,         \
       int batch, int compute, int algorithm),                                                     \
      cublasGemmStridedBatchedEx, hip_none, emu_blas_gemm_typed)                                   \
    X(gemm_to,                                                                                     \
      (void *handle, int turn_a, int turn_b, int m, int n, int k, const void *alpha,               \
       const void *a, int type_a, int lda, long long next_a, const void *b, int type_b, int ldb,   \
       long long next_b, const void *beta, const void *c, int type_c, int ldc, long long next_c,   \
       void *d, int type_d, int ldd, long long next_d, int batch, int compute, int algorithm,      \
       int solution, unsigned flags),                                                              \
      cuda_none, rocblas_gemm_strided_batched_ex, emu_none)
