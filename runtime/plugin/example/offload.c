/* An example of an execution provider with a memory of its own: it computes MatMul of two matrices,
 * and Relu, of float, in memory whose addresses mean nothing to the host. The option limit_bytes
 * says how much it has (default: 64 MiB). What a real device would do in its own time is done at
 * once.
 *
 *   cc -shared -fPIC -I. -o liboffload.so runtime/plugin/example/offload.c
 *   onnxd run MODEL.onnx --plugins ./liboffload.so --providers offload,cpu */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plugin/onnxd_plugin.h"

enum { kFloat = 1, kAlignment = 256 };

/* Between an address here and the same one in the host's memory. */
static const uintptr_t kAddressOffset = (uintptr_t)1 << 56;

typedef struct Memory {
  size_t limit_bytes;
  atomic_size_t used_bytes;
} Memory;

static void* ToDevice(void* host) { return (void*)((uintptr_t)host + kAddressOffset); }
static void* ToHost(const void* device) { return (void*)((uintptr_t)device - kAddressOffset); }

static OnnxdStatus Open(const OnnxdHost* host, OnnxdContext* context, void** provider) {
  const char* limit = "67108864";
  char* end;
  Memory* memory = malloc(sizeof *memory);
  if (memory == NULL) return ONNXD_RESOURCE_EXHAUSTED;
  host->option(context, "limit_bytes", &limit);
  memory->limit_bytes = strtoul(limit, &end, 10);
  atomic_init(&memory->used_bytes, 0);
  if (end == limit || *end != '\0') {
    free(memory);
    host->set_error(context, "limit_bytes is not a number");
    return ONNXD_INVALID_ARGUMENT;
  }
  *provider = memory;
  return ONNXD_OK;
}

/* A block begins with its size. */
static OnnxdStatus Allocate(const OnnxdHost* host, OnnxdContext* context, void* device,
                            size_t bytes, void** at) {
  Memory* memory = device;
  size_t block_bytes;
  char* block;
  if (bytes > memory->limit_bytes) {
    host->set_error(context, "more than limit_bytes");
    return ONNXD_RESOURCE_EXHAUSTED;
  }
  block_bytes = (bytes / kAlignment + 2) * kAlignment;
  if (atomic_fetch_add(&memory->used_bytes, block_bytes) + block_bytes > memory->limit_bytes ||
      (block = aligned_alloc(kAlignment, block_bytes)) == NULL) {
    atomic_fetch_sub(&memory->used_bytes, block_bytes);
    host->set_error(context, "limit_bytes is used up");
    return ONNXD_RESOURCE_EXHAUSTED;
  }
  memcpy(block, &block_bytes, sizeof block_bytes);
  *at = ToDevice(block + kAlignment);
  return ONNXD_OK;
}

static void Free(void* device, void* at) {
  Memory* memory = device;
  char* block = (char*)ToHost(at) - kAlignment;
  size_t block_bytes;
  memcpy(&block_bytes, block, sizeof block_bytes);
  atomic_fetch_sub(&memory->used_bytes, block_bytes);
  free(block);
}

static OnnxdStatus MakeStream(const OnnxdHost* host, OnnxdContext* context, void* device,
                              void** stream) {
  (void)host, (void)context;
  *stream = device;
  return ONNXD_OK;
}
static void DestroyStream(void* device, void* stream) { (void)device, (void)stream; }

static OnnxdStatus CopyIn(const OnnxdHost* host, OnnxdContext* context, void* stream, void* to,
                          const void* from, size_t bytes) {
  (void)host, (void)context, (void)stream;
  if (bytes > 0) memcpy(ToHost(to), from, bytes);
  return ONNXD_OK;
}
static OnnxdStatus CopyOut(const OnnxdHost* host, OnnxdContext* context, void* stream, void* to,
                           const void* from, size_t bytes) {
  (void)host, (void)context, (void)stream;
  if (bytes > 0) memcpy(to, ToHost(from), bytes);
  return ONNXD_OK;
}
static OnnxdStatus CopyWithin(const OnnxdHost* host, OnnxdContext* context, void* stream, void* to,
                              const void* from, size_t bytes) {
  (void)host, (void)context, (void)stream;
  if (bytes > 0) memmove(ToHost(to), ToHost(from), bytes);
  return ONNXD_OK;
}
static OnnxdStatus Synchronize(const OnnxdHost* host, OnnxdContext* context, void* stream) {
  (void)host, (void)context, (void)stream;
  return ONNXD_OK;
}

static int32_t Knows(void* provider, const char* domain, const char* op, int32_t version) {
  (void)provider, (void)version;
  return domain[0] == '\0' && (strcmp(op, "Relu") == 0 || strcmp(op, "MatMul") == 0);
}

static OnnxdStatus Decline(const OnnxdHost* host, OnnxdContext* context, const char* why) {
  host->set_error(context, why);
  return ONNXD_UNIMPLEMENTED;
}

static void Relu(const OnnxdTensor* inputs, OnnxdTensor* outputs) {
  const float* x = ToHost(inputs[0].data);
  float* y = ToHost(outputs[0].data);
  int64_t elements = 1, i;
  int32_t axis;
  for (axis = 0; axis < inputs[0].rank; ++axis) elements *= inputs[0].dims[axis];
  for (i = 0; i < elements; ++i) y[i] = x[i] < 0 ? 0 : x[i];
}

/* [rows, inner] times [inner, columns]. */
static void MatMul(const OnnxdTensor* inputs, OnnxdTensor* outputs) {
  const float* a = ToHost(inputs[0].data);
  const float* b = ToHost(inputs[1].data);
  float* y = ToHost(outputs[0].data);
  const int64_t rows = inputs[0].dims[0], inner = inputs[0].dims[1], columns = inputs[1].dims[1];
  int64_t row, column, k;
  for (row = 0; row < rows; ++row) {
    for (column = 0; column < columns; ++column) {
      float sum = 0;
      for (k = 0; k < inner; ++k) sum += a[row * inner + k] * b[k * columns + column];
      y[row * columns + column] = sum;
    }
  }
}

typedef struct Kernel {
  void (*compute)(const OnnxdTensor* inputs, OnnxdTensor* outputs);
} Kernel;
static Kernel kRelu = {Relu}, kMatMul = {MatMul};

static OnnxdStatus Create(const OnnxdHost* host, OnnxdContext* context, void* provider,
                          int32_t only_asks, void** kernel) {
  (void)provider, (void)only_asks;
  if (host->input_type(context, 0) != kFloat) return Decline(host, context, "it is not of float");
  *kernel = &kRelu;
  if (strcmp(host->node_operator(context), "Relu") == 0) return ONNXD_OK;
  if (host->input_rank(context, 0) != 2 || host->input_rank(context, 1) != 2) {
    return Decline(host, context, "it is not of two matrices");
  }
  *kernel = &kMatMul;
  return ONNXD_OK;
}

static OnnxdStatus Compute(const OnnxdHost* host, OnnxdContext* context, void* kernel, void* stream,
                           const OnnxdTensor* inputs, size_t input_count, OnnxdTensor* outputs,
                           size_t output_count) {
  (void)host, (void)context, (void)stream, (void)input_count, (void)output_count;
  ((const Kernel*)kernel)->compute(inputs, outputs);
  return ONNXD_OK;
}

static const OnnxdDevice kDevice = {
    sizeof(OnnxdDevice), "offload:0", Allocate, Free,       MakeStream,
    DestroyStream,       CopyIn,      CopyOut,  CopyWithin, Synchronize};

static const OnnxdExecutionProvider kProvider = {
    sizeof(OnnxdExecutionProvider), "offload", Open, &kDevice, Knows, Create, NULL, Compute};

static const OnnxdPlugin kPlugin = {sizeof(OnnxdPlugin), ONNXD_PLUGIN_API_VERSION, "offload", NULL,
                                    NULL,                0,                        &kProvider};

const OnnxdPlugin* onnxd_plugin(const OnnxdHost* host) {
  return host->api_version >= ONNXD_PLUGIN_API_VERSION ? &kPlugin : NULL;
}
