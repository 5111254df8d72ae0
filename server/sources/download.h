// One object into one file.
#pragma once

#include <functional>
#include <string>

#include "server/sources/object_store.h"

namespace onnxd {

// Writes the object to `path`, where a part of it may stand already from before, of the same
// revision: that is not read again. The file is whole, of the size and checksum that the store
// says, and on the disk when this returns. `count` is told how many bytes came. kAborted when the
// object changed meanwhile, kDataLoss when what comes is not what the store says,
// kResourceExhausted for more than `most` bytes, kUnavailable, kCancelled.
Status Download(ObjectStore& store, const RemoteObject& object, const Fetcher& fetcher,
                const std::string& path, int64_t most, const std::function<void(int64_t)>& count);

}  // namespace onnxd
