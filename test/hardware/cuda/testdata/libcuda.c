// Stands in for libcuda on a simulated GPU: one GPU of 16 GiB with 100
// multiprocessors. A client of an MPS daemon is kept to the lower of what the daemon
// was started with (spec.json beside its pipe folder) and what its own environment
// says, as was measured on a real H200. A context takes 400 MiB of it, as there.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MIB (1ULL << 20)

static unsigned long long left;
static int percentage = 100;
static char GPU[64];

static const char *after(const char *text, const char *key) {
	const char *at = strstr(text, key);
	return at ? at + strlen(key) : NULL;
}

static int same(const char *a, const char *b) {
	struct stat x, y;
	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int cuInit(unsigned int flags) {
	char path[4096], spec[4096] = "";
	const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY"), *at;
	(void)flags;
	left = 16384 * MIB;
	if (!pipe) {
		if ((at = getenv("CUDA_VISIBLE_DEVICES"))) snprintf(GPU, sizeof GPU, "%s", at);
		left -= 400 * MIB;
		return *GPU ? 0 : 100; // CUDA_ERROR_NO_DEVICE
	}
	struct stat control;
	snprintf(path, sizeof path, "%s/control", pipe);
	if (stat(path, &control)) return 805; // CUDA_ERROR_MPS_CONNECTION_FAILED
	snprintf(path, sizeof path, "%s/../shm", pipe);
	if (!same(path, "/dev/shm")) return 806; // CUDA_ERROR_MPS_RPC_FAILURE
	snprintf(path, sizeof path, "%s/../spec.json", pipe);
	FILE *file = fopen(path, "r");
	if (!file) return 805;
	spec[fread(spec, 1, sizeof spec - 1, file)] = 0;
	fclose(file);
	if ((at = after(spec, "\"uuid\":\""))) sscanf(at, "%63[^\"]", GPU);
	if ((at = after(spec, "\"memoryLimit\":")) && strtoull(at, NULL, 10) < left) left = strtoull(at, NULL, 10);
	if ((at = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")) && (at = after(at, "0=")) && strtoull(at, NULL, 10) * MIB < left)
		left = strtoull(at, NULL, 10) * MIB;
	if ((at = after(spec, "\"threadPercentage\":"))) percentage = atoi(at);
	if ((at = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")) && atoi(at) < percentage) percentage = atoi(at);
	if (left < 400 * MIB) return 2;
	left -= 400 * MIB;
	return 0;
}

int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device) {
	(void)device;
	const char *at = after(GPU, "GPU-");
	if (!at) at = after(GPU, "MIG-");
	for (int i = 0; at && i < 16; i++) {
		if (*at == '-') at++;
		unsigned int byte;
		if (sscanf(at, "%2x", &byte) != 1) return 1;
		uuid[i] = byte;
		at += 2;
	}
	return at ? 0 : 1;
}
int cuDeviceGetAttribute(int *n, int which, int device) {
	(void)device;
	*n = percentage;
	return which == 16 ? 0 : 1;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &left; return 0; }
int cuCtxSetCurrent(void *context) { return context ? 0 : 201; }
int cuMemAlloc_v2(unsigned long long *at, size_t bytes) {
	if (bytes > left) return 2;
	left -= bytes;
	*at = 1;
	return 0;
}
int cuGetErrorName(int error, const char **text) {
	*text = error == 805 ? "CUDA_ERROR_MPS_CONNECTION_FAILED" : error == 806 ? "CUDA_ERROR_MPS_RPC_FAILURE" : "simulated";
	return 0;
}
