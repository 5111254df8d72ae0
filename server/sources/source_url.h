// SourceUrl: where models are that are not on this machine.
//
//   s3://BUCKET/PREFIX              an Amazon S3 bucket, or one that speaks like it
//   gs://BUCKET/PREFIX              Google Cloud Storage
//   az://CONTAINER/PREFIX           Azure Blob Storage
//   hf://ORGANISATION/MODEL@REVISION/FILE   the Hugging Face hub; revision and file may be left out
//   https://HOST/PATH.onnx#sha256=HEX       one file; the checksum may be left out; http as well
//
// A PREFIX is a repository (NAME/VERSION/model.onnx), an MLflow model (MLmodel), or one .onnx file.
#pragma once

#include <string>

#include "runtime/base/status.h"

namespace onnxd {

struct SourceUrl {
  enum class Kind { kS3, kGoogle, kAzure, kHuggingFace, kHttp };
  Kind kind = Kind::kHttp;
  std::string text;      // as it was written
  std::string shown;     // the same without a query, which may hold a signature
  std::string bucket;    // container, or ORGANISATION/MODEL
  std::string path;      // without slashes at its ends; kHttp: the whole URL
  std::string revision;  // kHuggingFace
  std::string sha256;    // kHttp: 64 hexadecimal digits; empty: unknown
};

// Whether the text means something elsewhere.
bool IsRemote(const std::string& text);

// kInvalidArgument says what is missing.
Result<SourceUrl> ParseSourceUrl(const std::string& text);

// Percent-encoded but for unreserved characters (RFC 3986, 2.3), and slashes where they are kept.
std::string EncodeUrl(const std::string& text, bool keep_slashes);
// What %XX stands for; other text stays.
std::string DecodeUrl(const std::string& text);

}  // namespace onnxd
