// Simulated libcuda.so.1: one GPU with 16 GiB and 100 multiprocessors, which can add numbers. A client
// of an MPS daemon is kept to the lower of what the daemon says and what its own environment says, as
// was measured on a real H200. A context takes 400 MiB of that, as there.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MIB (1ULL << 20)
#define CONTEXT (400 * MIB)

// Results of cuda.h.
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_CONTEXT = 201, INVALID_PTX = 218,
       NOT_FOUND = 500, LAUNCH_FAILED = 719, MPS_CONNECTION_FAILED = 805, MPS_RPC_FAILURE = 806 };

extern char **environ;

static unsigned long long left;
static int percentage = 100;
static char uuid[64];

// takeUUID takes the first UUID in a text.
static int takeUUID(const char *text) {
	const char *at = text ? strstr(text, "GPU-") : NULL;
	if (!at && text) at = strstr(text, "MIG-");
	return at && sscanf(at, "%63[A-Za-z0-9-]", uuid) == 1;
}

// visible reports whether the environment names a GPU, as a container's does.
static int visible(void) {
	if (takeUUID(getenv("CUDA_VISIBLE_DEVICES"))) return 1;
	for (char **at = environ; *at; at++)
		if (!strncmp(*at, "TRANCHE_DEVICE_", 15) && takeUUID(*at)) return 1;
	return 0;
}

static int same(const char *a, const char *b) {
	struct stat x, y;
	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// attach makes the process a client of a daemon until it ends. The daemon answers with its limits and
// its GPU.
static int attach(const char *pipe) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char answer[4096] = "", gpu[64] = "", shm[4096];
	unsigned long long mib = 0;
	float percent = 100;
	size_t got = 0;
	ssize_t n;
	int daemon = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%s/control", pipe);
	if (daemon < 0 || connect(daemon, (struct sockaddr *)&address, sizeof address)) return MPS_CONNECTION_FAILED;
	dprintf(daemon, "attach %d\n", getpid());
	while (got < sizeof answer && (n = read(daemon, answer + got, sizeof answer - got)) > 0)
		if (!answer[(got += n) - 1]) break;
	if (sscanf(answer, "%llu %f %63s", &mib, &percent, gpu) < 2) return MPS_CONNECTION_FAILED;
	snprintf(shm, sizeof shm, "%s/../shm", pipe); // seen outside of containers only
	if (!access(shm, F_OK) && !same(shm, "/dev/shm")) return MPS_RPC_FAILURE;
	if (mib && mib * MIB < left) left = mib * MIB;
	percentage = percent;
	return takeUUID(gpu) || visible() ? SUCCESS : NO_DEVICE;
}

int cuInit(unsigned int flags) {
	const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY"), *limit;
	(void)flags;
	left = 16384 * MIB;
	percentage = 100;
	if (!pipe && !visible()) return NO_DEVICE;
	if (pipe) {
		int failed = attach(pipe);
		if (failed) return failed;
		if ((limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")) && (limit = strstr(limit, "0=")) && strtoull(limit + 2, NULL, 10) * MIB < left)
			left = strtoull(limit + 2, NULL, 10) * MIB;
		if ((limit = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")) && atoi(limit) < percentage) percentage = atoi(limit);
	}
	if (left < CONTEXT) return OUT_OF_MEMORY;
	left -= CONTEXT;
	return SUCCESS;
}

int cuDeviceGetCount(int *n) { *n = 1; return SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return SUCCESS; }

int cuDeviceGetUuid(unsigned char *bytes, int device) {
	const char *at = uuid + 4;
	(void)device;
	for (int i = 0; i < 16; i++) {
		unsigned int byte;
		if (*at == '-') at++;
		if (sscanf(at, "%2x", &byte) != 1) return INVALID_VALUE;
		bytes[i] = byte;
		at += 2;
	}
	return SUCCESS;
}

int cuDeviceGetAttribute(int *n, int which, int device) {
	(void)device;
	*n = percentage;
	return which == 16 ? SUCCESS : INVALID_VALUE; // MULTIPROCESSOR_COUNT
}

int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &left; return SUCCESS; }
int cuCtxSetCurrent(void *context) { return context ? SUCCESS : INVALID_CONTEXT; }
int cuCtxSynchronize(void) { return SUCCESS; }

// Only what is small has memory behind it.
int cuMemAlloc_v2(unsigned long long *at, size_t bytes) {
	if (bytes > left) return OUT_OF_MEMORY;
	left -= bytes;
	*at = bytes <= MIB ? (unsigned long long)(size_t)calloc(1, bytes) : 1;
	return SUCCESS;
}

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes) { memcpy((void *)(size_t)to, from, bytes); return SUCCESS; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes) { memcpy(to, (void *)(size_t)from, bytes); return SUCCESS; }

int cuModuleLoadData(void **module, const void *text) {
	*module = (void *)text;
	return strstr(text, ".version") && strstr(text, ".target") ? SUCCESS : INVALID_PTX;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
	char entry[128];
	snprintf(entry, sizeof entry, ".visible .entry %s(", name);
	*function = strstr(module, entry);
	return *function ? SUCCESS : NOT_FOUND;
}

// The one kernel that there is adds one to each of an array of 32-bit numbers.
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		unsigned shared, void *stream, void **parameters, void **extra) {
	(void)shared, (void)stream, (void)extra;
	if (!function || gy != 1 || gz != 1 || by != 1 || bz != 1) return LAUNCH_FAILED;
	unsigned *numbers = (unsigned *)(size_t)*(unsigned long long *)parameters[0];
	for (unsigned i = 0; i < gx * bx; i++) numbers[i]++;
	return SUCCESS;
}

int cuGetErrorName(int error, const char **text) {
	*text = error == MPS_CONNECTION_FAILED ? "CUDA_ERROR_MPS_CONNECTION_FAILED" : error == MPS_RPC_FAILURE ? "CUDA_ERROR_MPS_RPC_FAILURE" : "simulated";
	return SUCCESS;
}
