// An execution provider of a plug-in that fails as its option `fault` says; it takes every node.
// FAULT 1: it lacks create. 2: its device lacks synchronize.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "runtime/plugin/onnxd_plugin.h"

namespace {

struct Provider {
  std::string fault;
  bool Fails(const char* name) const { return fault == name; }
};

OnnxdStatus Open(const OnnxdHost* host, OnnxdContext* context, void** made) {
  const char* fault = "";
  host->option(context, "fault", &fault);
  if (std::string(fault) == "open") throw std::runtime_error("no such hardware");
  *made = new Provider{fault};
  return ONNXD_OK;
}

OnnxdStatus Allocate(const OnnxdHost*, OnnxdContext*, void* device, size_t bytes, void** at) {
  const auto& provider = *static_cast<Provider*>(device);
  if (provider.Fails("allocate")) return ONNXD_RESOURCE_EXHAUSTED;
  if (provider.Fails("no_address")) return ONNXD_OK;
  *at = std::aligned_alloc(256, (bytes / 256 + 1) * 256);
  if (provider.Fails("unaligned")) *at = static_cast<char*>(*at) + 1;
  return ONNXD_OK;
}
void Free(void*, void* at) {
  // Of an address that was moved as well.
  std::free(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(at) / 256 * 256));
}

OnnxdStatus MakeStream(const OnnxdHost*, OnnxdContext*, void* device, void** stream) {
  if (static_cast<Provider*>(device)->Fails("make_stream")) throw 7;
  *stream = device;
  return ONNXD_OK;
}
void DestroyStream(void*, void*) { throw std::runtime_error("nobody is told"); }

OnnxdStatus Copy(const OnnxdHost*, OnnxdContext*, void*, void*, const void*, size_t) {
  return ONNXD_OK;
}
OnnxdStatus Synchronize(const OnnxdHost* host, OnnxdContext* context, void* stream) {
  if (!static_cast<Provider*>(stream)->Fails("lost")) return ONNXD_OK;
  host->set_error(context, "it fell off the bus");
  return ONNXD_UNAVAILABLE;
}

int32_t Knows(void*, const char*, const char*, int32_t) { return 1; }

OnnxdStatus Create(const OnnxdHost* host, OnnxdContext* context, void* made, int32_t,
                   void** kernel) {
  const auto& provider = *static_cast<Provider*>(made);
  if (provider.Fails("create")) throw std::runtime_error("out of luck");
  if (provider.Fails("decline")) {
    host->set_error(context, "not today");
    return ONNXD_UNIMPLEMENTED;
  }
  *kernel = made;
  return ONNXD_OK;
}

OnnxdStatus Compute(const OnnxdHost*, OnnxdContext*, void* kernel, void*, const OnnxdTensor*,
                    size_t, OnnxdTensor*, size_t) {
  if (static_cast<Provider*>(kernel)->Fails("compute")) throw std::runtime_error("half way");
  return ONNXD_OK;
}

constexpr OnnxdDevice kDevice = {
    sizeof(OnnxdDevice), "faulty:0", Allocate, Free, MakeStream,
    DestroyStream,       Copy,       Copy,     Copy, FAULT == 2 ? nullptr : Synchronize};
constexpr OnnxdExecutionProvider kProvider = {
    sizeof(OnnxdExecutionProvider), "faulty", Open,   &kDevice, Knows,
    FAULT == 1 ? nullptr : Create,  nullptr,  Compute};
constexpr OnnxdPlugin kPlugin = {
    sizeof(OnnxdPlugin), ONNXD_PLUGIN_API_VERSION, "faulty_provider", nullptr, nullptr, 0,
    &kProvider};

}  // namespace

const OnnxdPlugin* onnxd_plugin(const OnnxdHost*) { return &kPlugin; }
