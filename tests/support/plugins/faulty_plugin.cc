// Plug-ins that break the rules of onnxd_plugin.h, one fault a build (FAULT).
#include <cstddef>
#include <stdexcept>

#include "runtime/plugin/onnxd_plugin.h"

// FAULT 0: it loads; each of its operators misbehaves in its own way.
// FAULT 1: its entry throws. 2: it declines. 3: it is of a later interface. 4: it takes a domain
// that is not its own. 5: it has no operators. 6: an operator has no compute. 7: none, but it was
// built with the interface's first version, where its description ended before `provider`. 8: none;
// its operator is one of onnxruntime-extensions that onnxd has not. 9: one that it has.

namespace {

constexpr int32_t kFloat = 1;

OnnxdStatus SameAsInput(const OnnxdHost* host, OnnxdContext* context) {
  return host->set_output(context, 0, kFloat, host->input_rank(context, 0),
                          host->input_dims(context, 0));
}
OnnxdStatus Nothing(const OnnxdHost*, OnnxdContext*, void*, const OnnxdTensor*, size_t,
                    OnnxdTensor*, size_t) {
  return ONNXD_OK;
}
OnnxdStatus Throw(const OnnxdHost*, OnnxdContext*, void*, const OnnxdTensor*, size_t, OnnxdTensor*,
                  size_t) {
  throw std::runtime_error("out of luck");
}
OnnxdStatus UnknownStatus(const OnnxdHost*, OnnxdContext*, void*, const OnnxdTensor*, size_t,
                          OnnxdTensor*, size_t) {
  return 4711;
}
OnnxdStatus ThrowInCreate(const OnnxdHost*, OnnxdContext*, void**) { throw 7; }
OnnxdStatus NegativeDimension(const OnnxdHost* host, OnnxdContext* context) {
  const int64_t dims[] = {-5};
  host->set_output(context, 0, kFloat, 1, dims);
  return ONNXD_OK;
}
OnnxdStatus UnknownType(const OnnxdHost* host, OnnxdContext* context) {
  return host->set_output(context, 0, 99, 0, nullptr);
}
OnnxdStatus NoSuchOutput(const OnnxdHost* host, OnnxdContext* context) {
  return host->set_output(context, 9, kFloat, 0, nullptr);
}
OnnxdStatus HugeRank(const OnnxdHost* host, OnnxdContext* context) {
  const int64_t dims[1] = {1};
  return host->set_output(context, 0, kFloat, 1000000, dims);
}
OnnxdStatus HugeOutput(const OnnxdHost* host, OnnxdContext* context) {
  const int64_t dims[] = {int64_t{1} << 31, int64_t{1} << 31};
  return host->set_output(context, 0, kFloat, 2, dims);
}
OnnxdStatus Undecided(const OnnxdHost* host, OnnxdContext* context) {
  return host->set_output(context, 0, kFloat, -1, nullptr);
}

using Infer = OnnxdStatus (*)(const OnnxdHost*, OnnxdContext*);
using Create = OnnxdStatus (*)(const OnnxdHost*, OnnxdContext*, void**);
using Compute = OnnxdStatus (*)(const OnnxdHost*, OnnxdContext*, void*, const OnnxdTensor*, size_t,
                                OnnxdTensor*, size_t);

constexpr OnnxdOperator Operator(const char* name, Infer infer, Compute compute,
                                 Create create = nullptr) {
  return {sizeof(OnnxdOperator), name, 1, 1, 1, 1, 1, nullptr, 0, infer, create, nullptr, compute};
}

constexpr OnnxdOperator kMisbehaving[] = {
    Operator("Throws", SameAsInput, Throw),
    Operator("ThrowsInCreate", SameAsInput, Nothing, ThrowInCreate),
    Operator("UnknownStatus", SameAsInput, UnknownStatus),
    Operator("NegativeDimension", NegativeDimension, Nothing),
    Operator("UnknownType", UnknownType, Nothing),
    Operator("NoSuchOutput", NoSuchOutput, Nothing),
    Operator("HugeRank", HugeRank, Nothing),
    Operator("HugeOutput", HugeOutput, Nothing),
    Operator("Undecided", Undecided, Nothing),
};
constexpr const OnnxdOperator* kOperators[] = {
    &kMisbehaving[0], &kMisbehaving[1], &kMisbehaving[2], &kMisbehaving[3], &kMisbehaving[4],
    &kMisbehaving[5], &kMisbehaving[6], &kMisbehaving[7], &kMisbehaving[8]};

constexpr OnnxdOperator kUncomputable = Operator("Uncomputable", SameAsInput, nullptr);
constexpr const OnnxdOperator* kUncomputableOnly[] = {&kUncomputable};

OnnxdStatus Copy(const OnnxdHost*, OnnxdContext*, void*, const OnnxdTensor* inputs, size_t,
                 OnnxdTensor* outputs, size_t) {
  const auto* from = static_cast<const float*>(inputs[0].data);
  for (int64_t i = 0; i < inputs[0].dims[0]; ++i) static_cast<float*>(outputs[0].data)[i] = from[i];
  return ONNXD_OK;
}
constexpr OnnxdOperator kExtension =
    Operator(FAULT == 8 ? "GaussianBlur" : "NegPos", SameAsInput, Copy);
constexpr const OnnxdOperator* kExtensionOnly[] = {&kExtension};

const int behind = 0;  // what follows in memory is no provider
constexpr size_t kFirstBytes = offsetof(OnnxdPlugin, provider);
const OnnxdPlugin kPlugin = {
    FAULT == 7 ? kFirstBytes : sizeof(OnnxdPlugin),
    FAULT == 3   ? 99
    : FAULT == 7 ? 1
                 : ONNXD_PLUGIN_API_VERSION,
    FAULT == 7 ? "first" : "faulty",
    FAULT >= 8   ? "ai.onnx.contrib"
    : FAULT == 4 ? "ai.onnx.ml"
    : FAULT == 7 ? "com.example.first"
                 : "com.example.faulty",
    FAULT >= 8   ? kExtensionOnly
    : FAULT == 6 ? kUncomputableOnly
                 : kOperators,
    FAULT == 5                 ? 0
    : FAULT == 6 || FAULT >= 8 ? 1
                               : 9,
    FAULT == 7 ? reinterpret_cast<const OnnxdExecutionProvider*>(&behind) : nullptr};

}  // namespace

const OnnxdPlugin* onnxd_plugin(const OnnxdHost*) {
  if (FAULT == 1) throw std::runtime_error("not today");
  return FAULT == 2 ? nullptr : &kPlugin;
}
