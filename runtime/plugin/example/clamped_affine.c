/* An example plug-in: ClampedAffine of domain com.example,
 *
 *   Y = min(max(scale * X + offset, low), high)     X float of any shape
 *
 * with attributes scale (default 1), offset (0), low (required) and high (required). */
#include <stdlib.h>

#include "runtime/plugin/onnxd_plugin.h"

enum { kFloat = 1 };

typedef struct Parameters {
  float scale, offset, low, high;
} Parameters;

static OnnxdStatus Infer(const OnnxdHost* host, OnnxdContext* context) {
  const int32_t type = host->input_type(context, 0);
  if (type != 0 && type != kFloat) {
    host->set_error(context, "ClampedAffine takes float");
    return ONNXD_INVALID_ARGUMENT;
  }
  return host->set_output(context, 0, kFloat, host->input_rank(context, 0),
                          host->input_dims(context, 0));
}

static OnnxdStatus Create(const OnnxdHost* host, OnnxdContext* context, void** state) {
  Parameters* parameters = malloc(sizeof *parameters);
  if (parameters == NULL) return ONNXD_RESOURCE_EXHAUSTED;
  parameters->scale = 1;
  parameters->offset = 0;
  host->attribute_float(context, "scale", &parameters->scale);
  host->attribute_float(context, "offset", &parameters->offset);
  host->attribute_float(context, "low", &parameters->low);
  host->attribute_float(context, "high", &parameters->high);
  if (!(parameters->low <= parameters->high)) {
    free(parameters);
    host->set_error(context, "low must not be above high");
    return ONNXD_INVALID_ARGUMENT;
  }
  *state = parameters;
  return ONNXD_OK;
}

static OnnxdStatus Compute(const OnnxdHost* host, OnnxdContext* context, void* state,
                           const OnnxdTensor* inputs, size_t input_count, OnnxdTensor* outputs,
                           size_t output_count) {
  const Parameters* parameters = state;
  const float* x = inputs[0].data;
  float* y = outputs[0].data;
  int64_t elements = 1;
  int32_t axis;
  int64_t i;
  (void)host, (void)context, (void)input_count, (void)output_count;
  for (axis = 0; axis < inputs[0].rank; ++axis) elements *= inputs[0].dims[axis];
  for (i = 0; i < elements; ++i) {
    float value = parameters->scale * x[i] + parameters->offset;
    if (value < parameters->low) value = parameters->low;
    if (value > parameters->high) value = parameters->high;
    y[i] = value;
  }
  return ONNXD_OK;
}

static const OnnxdAttribute kAttributes[] = {
    {"scale", "FLOAT", 0}, {"offset", "FLOAT", 0}, {"low", "FLOAT", 1}, {"high", "FLOAT", 1}};

static const OnnxdOperator kClampedAffine = {sizeof(OnnxdOperator),
                                             "ClampedAffine",
                                             1,
                                             1,
                                             1,
                                             1,
                                             1,
                                             kAttributes,
                                             4,
                                             Infer,
                                             Create,
                                             free,
                                             Compute};

static const OnnxdOperator* const kOperators[] = {&kClampedAffine};

static const OnnxdPlugin kPlugin = {
    sizeof(OnnxdPlugin), ONNXD_PLUGIN_API_VERSION, "clamped_affine", "com.example", kOperators, 1,
    NULL};

const OnnxdPlugin* onnxd_plugin(const OnnxdHost* host) {
  return host->api_version >= ONNXD_PLUGIN_API_VERSION ? &kPlugin : NULL;
}
