/* Weights: mapped from the file LIBRARY.weights when the library is loaded; NULL when it is
 * missing. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#define BK_WEIGHTS_CHECK
static const unsigned char *bk_weights;
__attribute__((constructor)) static void bk_map_weights(void) {
    Dl_info info;
    char path[4096 + 16], *real;
    struct stat st;
    if (!dladdr((void *)(uintptr_t)&bk_map_weights, &info) || !info.dli_fname) return;
    real = realpath(info.dli_fname, NULL); /* the library may have been opened through a link */
    int n = real ? snprintf(path, sizeof path, "%s.weights", real) : -1;
    free(real);
    if (n < 0 || n >= (int)sizeof path) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &st) == 0 && (unsigned long long)st.st_size == BK_WEIGHTS_BYTES) {
        void *p = mmap(NULL, BK_WEIGHTS_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p != MAP_FAILED) bk_weights = p;
    }
    close(fd);
}
__attribute__((destructor)) static void bk_unmap_weights(void) {
    if (bk_weights) munmap((void *)(uintptr_t)bk_weights, BK_WEIGHTS_BYTES);
}
