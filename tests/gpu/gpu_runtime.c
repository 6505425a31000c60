/* gpu_runtime.c: stands in for the part of CUDA's runtime that eval/gpu/machine.cu calls, so that
 * its host part runs without a GPU. Launches are looked at and not run; each event comes later
 * after its predecessor than that one did, so that whatever is timed takes a time. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

enum { PROCESSORS = 132, ROOM = 2048 / 256 };
static struct CUevent_st *const no_event = (struct CUevent_st *)1;
static double now;
static int events, capturing, launched;

/* ---- what nvcc's own code calls */
void **__cudaRegisterFatBinary(void *image) { return image ? calloc(1, sizeof(void *)) : NULL; }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { free(handle); }
void __cudaRegisterFunction(void) {}
int __cudaGetKernel(void) { return 0; }
int __cudaLaunchKernel(void) { abort(); }
int __cudaPopCallConfiguration(void) { abort(); }

/* ---- devices and memory */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    if (device) return cudaErrorInvalidDevice;
    memset(p, 0, sizeof *p);
    strcpy(p->name, "Stand-in \"GPU\"");
    p->major = 9;
    p->multiProcessorCount = PROCESSORS;
    p->totalGlobalMem = (size_t)80 << 30;
    p->l2CacheSize = 50 << 20;
    p->sharedMemPerBlockOptin = 232448;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a, int device) {
    *value = 1980000;
    return a == cudaDevAttrClockRate && !device ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaDriverGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    return capturing ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaErrorInvalidValue ? "invalid argument" : "an error";
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaMalloc(void **p, size_t n) {
    *p = malloc(n); /* what is not touched takes no room */
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *p) {
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMemset(void *p, int value, size_t n) {
    if (!p) return cudaErrorInvalidValue;
    memset(p, value, n < 4096 ? n : 4096);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
    memcpy(to, from, n);
    return kind == cudaMemcpyHostToDevice ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMemGetInfo(size_t *room, size_t *all) {
    *room = *all = (size_t)1 << 22;
    return cudaSuccess;
}

/* ---- streams and events */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    *s = (cudaStream_t)2;
    return flags == cudaStreamNonBlocking ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    return s ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
    *e = no_event;
    events++;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    events--;
    return e == no_event ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    now++;
    return e && s ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return e ? cudaSuccess : cudaErrorInvalidValue; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    *ms = (float)(now * 1e-3);
    return begin && end ? cudaSuccess : cudaErrorInvalidValue;
}

/* ---- launches */
cudaError_t cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute a, int value) {
    return f && value && a == cudaFuncAttributeNonPortableClusterSizeAllowed
               ? cudaSuccess
               : cudaErrorInvalidValue;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **arguments) {
    unsigned blocks = c->gridDim.x, threads = c->blockDim.x;
    (void)arguments;
    if (!f || !c->stream || !blocks || !threads || threads > 1024)
        return cudaErrorInvalidConfiguration;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        unsigned cluster = c->attrs[i].val.clusterDim.x;
        if (c->attrs[i].id == cudaLaunchAttributeCooperative) {
            if (blocks > PROCESSORS * ROOM) return cudaErrorCooperativeLaunchTooLarge;
        } else if (c->attrs[i].id != cudaLaunchAttributeClusterDimension || cluster < 1 ||
                   blocks % cluster)
            return cudaErrorInvalidClusterSize;
    }
    launched++;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *f,
                                           const cudaLaunchConfig_t *c) {
    *clusters = PROCESSORS / 8;
    return f && c->numAttrs == 1 && c->attrs[0].val.clusterDim.x == 8 ? cudaSuccess
                                                                      : cudaErrorInvalidValue;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    capturing = 1;
    launched = 0;
    return s && mode == cudaStreamCaptureModeGlobal ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
    *g = (cudaGraph_t)3;
    cudaError_t e = s && capturing && launched >= 100 ? cudaSuccess : cudaErrorInvalidValue;
    capturing = 0;
    return e;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t g, unsigned long long flags) {
    *made = (cudaGraphExec_t)4;
    return g && !flags ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s) {
    return g && s ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g) {
    return g ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) { return g ? cudaSuccess : cudaErrorInvalidValue; }
