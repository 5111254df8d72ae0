/* The C interface with which a shared library adds to onnxd operators of its own domain, an
 * execution provider that computes operators of any domain, or both.
 *
 * A plug-in exports one function, onnxd_plugin, that returns a description of what it has; see
 * example/clamped_affine.c (an operator) and example/offload.c (a provider with a memory of its
 * own). Build it as a shared library with no library of onnxd:
 *
 *   cc -shared -fPIC -I. -o libclamped_affine.so runtime/plugin/example/clamped_affine.c
 *   onnxd serve --plugins ./libclamped_affine.so MODEL.onnx
 *   onnxd serve --plugins ./liboffload.so --providers offload,cpu MODEL.onnx
 *
 * Rules of the interface:
 * - Structures begin with their size. A field beyond the size that a structure states is not there;
 *   later versions of this header only add fields and functions at the end.
 * - Memory belongs to whoever made it. Tensors and what the host's functions return are the host's
 *   and valid until the callback returns; descriptions are the plug-in's and stay for the process.
 * - Callbacks return an OnnxdStatus and say why with set_error. An exception that leaves one is
 *   caught and is an error like another. A plug-in shares the daemon's memory: load what you trust.
 * - create, infer and compute may be called from any thread, several at once; compute with the same
 *   state as well, so it must not write there without a lock of its own. What they answer depends
 * on attributes and inputs alone: nodes whose inputs are constant are computed once, at load.
 */
#ifndef ONNXD_PLUGIN_H_
#define ONNXD_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 2: execution providers. */
#define ONNXD_PLUGIN_API_VERSION 2u

/* The numbers are gRPC's. */
typedef int32_t OnnxdStatus;
enum {
  ONNXD_OK = 0,
  ONNXD_INVALID_ARGUMENT = 3,
  ONNXD_RESOURCE_EXHAUSTED = 8,
  ONNXD_UNIMPLEMENTED = 12,
  ONNXD_INTERNAL = 13,
  ONNXD_UNAVAILABLE = 14 /* of a provider's device: it is lost, with all that was on it */
};

/* Dense and row-major. data is aligned to 64 bytes; null for an operand that the node leaves out.
 * Packed types (4 and 2 bits) have the first element in the low bits. */
typedef struct OnnxdTensor {
  uint32_t struct_size;
  int32_t data_type; /* TensorProto.DataType; strings are not passed */
  int32_t rank;
  const int64_t* dims; /* [rank] */
  void* data;
} OnnxdTensor;

/* One call of a callback. */
typedef struct OnnxdContext OnnxdContext;

/* What the host offers. The functions that return int32_t return 1 when they have the answer, else
 * 0 and leave *value alone: an attribute that is missing, or of another kind. */
typedef struct OnnxdHost {
  uint32_t struct_size;
  uint32_t api_version;

  /* For people: cut after 1000 bytes. */
  void (*set_error)(OnnxdContext*, const char* message);

  /* In create and infer, of operators and of a provider. */
  int32_t (*attribute_int)(OnnxdContext*, const char* name, int64_t* value);
  int32_t (*attribute_float)(OnnxdContext*, const char* name, float* value);
  int32_t (*attribute_string)(OnnxdContext*, const char* name, const char** data, size_t* size);
  int32_t (*attribute_ints)(OnnxdContext*, const char* name, const int64_t** values, size_t* count);
  int32_t (*attribute_floats)(OnnxdContext*, const char* name, const float** values, size_t* count);

  /* In infer, and in a provider's create. A type of 0 is unknown or an absent operand; a rank of -1
   * is unknown; a dimension of -1 is unknown. *dims has `rank` entries, null when that is -1 or 0.
   */
  size_t (*input_count)(OnnxdContext*);
  size_t (*output_count)(OnnxdContext*);
  int32_t (*input_type)(OnnxdContext*, size_t input);
  int32_t (*input_rank)(OnnxdContext*, size_t input);
  const int64_t* (*input_dims)(OnnxdContext*, size_t input);
  /* In infer. rank -1: unknown. Dimensions of -1 are allowed while an input's are unknown. */
  OnnxdStatus (*set_output)(OnnxdContext*, size_t output, int32_t data_type, int32_t rank,
                            const int64_t* dims);

  /* Of version 2. In a provider's open: the value of an option, as provider_options gives it. */
  int32_t (*option)(OnnxdContext*, const char* name, const char** value);

  /* In a provider's create. The standard's own domain is "". The version is the one that brought
   * the operator in the form that the node has. */
  const char* (*node_name)(OnnxdContext*);
  const char* (*node_domain)(OnnxdContext*);
  const char* (*node_operator)(OnnxdContext*);
  int32_t (*node_version)(OnnxdContext*);
  /* As input_type; 0 also for an output that nobody asks for. */
  int32_t (*output_type)(OnnxdContext*, size_t output);
  /* Inputs whose elements the model has: in the host's memory, valid until the callback returns. */
  int32_t (*constant_input)(OnnxdContext*, size_t input, OnnxdTensor* value);
  /* compute finds this input in the host's memory, not on the device. */
  void (*read_on_host)(OnnxdContext*, size_t input);
} OnnxdHost;

typedef struct OnnxdAttribute {
  const char* name;
  const char* kind; /* "INT", "FLOAT", "STRING", "INTS" or "FLOATS" */
  int32_t required; /* 0 or 1 */
} OnnxdAttribute;

typedef struct OnnxdOperator {
  uint32_t struct_size;
  const char* name;
  int32_t since_version;            /* the domain's version that brought it in this form, from 1 */
  int32_t min_inputs, max_inputs;   /* up to 64; those from min_inputs on may be left out */
  int32_t min_outputs, max_outputs; /* at least 1, up to 64 */
  const OnnxdAttribute* attributes; /* [attribute_count]; others are refused */
  size_t attribute_count;

  /* Types and shapes of all outputs from those of the inputs. Once all inputs are known, so must be
   * all outputs: outputs whose shape the data decide are not part of this interface. */
  OnnxdStatus (*infer)(const OnnxdHost*, OnnxdContext*);
  /* Once per node, when a model loads: reads the attributes. May be null, then *state is null. */
  OnnxdStatus (*create)(const OnnxdHost*, OnnxdContext*, void** state);
  /* May be null. */
  void (*destroy)(void* state);
  /* outputs[i].data has room for the inferred shape and must be filled; null: not asked for. */
  OnnxdStatus (*compute)(const OnnxdHost*, OnnxdContext*, void* state, const OnnxdTensor* inputs,
                         size_t input_count, OnnxdTensor* outputs, size_t output_count);
} OnnxdOperator;

/* A memory apart from the host's. Addresses there are pointers that the host never follows, but
 * adds offsets to. Any thread; a stream one thread at a time. Calls on a stream are done in their
 * order, may return before they are, and answer ONNXD_UNAVAILABLE when the device is lost. */
typedef struct OnnxdDevice {
  uint32_t struct_size;
  const char* name; /* for people, such as "npu:0": letters, digits and -_: */
  /* Aligned to 256 bytes; ONNXD_RESOURCE_EXHAUSTED where there is no room. `device` is what open
   * made, here and below. */
  OnnxdStatus (*allocate)(const OnnxdHost*, OnnxdContext*, void* device, size_t bytes, void** at);
  void (*free)(void* device, void* at);
  OnnxdStatus (*make_stream)(const OnnxdHost*, OnnxdContext*, void* device, void** stream);
  void (*destroy_stream)(void* device, void* stream);
  /* `from` may be written again when the call returns. */
  OnnxdStatus (*copy_in)(const OnnxdHost*, OnnxdContext*, void* stream, void* to, const void* from,
                         size_t bytes);
  /* `to` has the bytes after synchronize. */
  OnnxdStatus (*copy_out)(const OnnxdHost*, OnnxdContext*, void* stream, void* to, const void* from,
                          size_t bytes);
  OnnxdStatus (*copy_within)(const OnnxdHost*, OnnxdContext*, void* stream, void* to,
                             const void* from, size_t bytes);
  /* Waits until all is done; says what failed meanwhile. */
  OnnxdStatus (*synchronize)(const OnnxdHost*, OnnxdContext*, void* stream);
} OnnxdDevice;

/* Computes nodes of any domain. Where a list of providers has it, it is asked in its turn for each
 * node; those that it does not take go to the next. */
typedef struct OnnxdExecutionProvider {
  uint32_t struct_size;
  const char* name; /* by which --providers and model.yaml list it: letters, digits, - and _ */
  /* Once for each set of options that models ask for; *provider stays for the process. */
  OnnxdStatus (*open)(const OnnxdHost*, OnnxdContext*, void** provider);
  /* Where compute finds its operands; its functions get *provider as their `device`. Null: in the
   * host's memory. */
  const OnnxdDevice* device;
  /* 1 if create may take a node of this operator; decides nothing. */
  int32_t (*knows)(void* provider, const char* domain, const char* op, int32_t version);
  /* Once per node, when a model loads: takes it, or says with ONNXD_UNIMPLEMENTED why not. With
   * only_asks the kernel may be made and destroyed without being used. */
  OnnxdStatus (*create)(const OnnxdHost*, OnnxdContext*, void* provider, int32_t only_asks,
                        void** kernel);
  /* May be null. */
  void (*destroy)(void* kernel);
  /* As an operator's. With a device: only enqueues on `stream`, and operands are there, but for
   * read_on_host; without, `stream` is null. Any thread, several at once with the same kernel. */
  OnnxdStatus (*compute)(const OnnxdHost*, OnnxdContext*, void* kernel, void* stream,
                         const OnnxdTensor* inputs, size_t input_count, OnnxdTensor* outputs,
                         size_t output_count);
} OnnxdExecutionProvider;

typedef struct OnnxdPlugin {
  uint32_t struct_size;
  uint32_t api_version;                  /* ONNXD_PLUGIN_API_VERSION that it was compiled with */
  const char* name;                      /* for messages: letters, digits, - and _ */
  const char* domain;                    /* its own; or "com.microsoft" or "ai.onnx.contrib", for
                                          * operators of these that onnxd has not */
  const OnnxdOperator* const* operators; /* [operator_count] */
  size_t operator_count;
  /* Of version 2. Null where there are operators alone; without operators, domain may be null. */
  const OnnxdExecutionProvider* provider;
} OnnxdPlugin;

/* The exported function: onnxd_plugin. Null means that the plug-in does not work with this host. */
typedef const OnnxdPlugin* (*OnnxdPluginEntry)(const OnnxdHost* host);

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const OnnxdPlugin*
onnxd_plugin(const OnnxdHost* host);

#ifdef __cplusplus
}
#endif

#endif /* ONNXD_PLUGIN_H_ */
