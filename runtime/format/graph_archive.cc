#include "runtime/format/graph_archive.h"

#include <cstdio>
#include <cstring>
#include <memory>

#include "runtime/base/byte_stream.h"
#include "runtime/base/content_hash.h"
#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// The file: a header, blobs at multiples of 64 bytes, then the description of everything.
struct Header {
  char magic[8] = {'o', 'n', 'n', 'x', 'd', 'a', '0', '1'};
  uint64_t description_offset = 0;
  uint64_t description_bytes = 0;
  ContentHash description_hash;
  uint64_t reserved[3] = {};
};
static_assert(sizeof(Header) == 64);

constexpr uint64_t kAlignment = kTensorAlignment;
constexpr int kMaxDepth = 64;  // of types and of graphs in graphs

Status Damaged(const std::string& path) {
  return Status(StatusCode::kDataLoss, StrCat(path, " is damaged"));
}

class BlobFile {
 public:
  explicit BlobFile(const std::string& path)
      : path_(path), file_(std::fopen(path.c_str(), "wbx"), &std::fclose) {
    const Header empty;
    Write(&empty, sizeof(empty));
  }

  // The offset of the copy.
  uint64_t Add(const void* bytes, size_t length) {
    static constexpr char kZeros[kAlignment] = {};
    Write(kZeros, (kAlignment - size_ % kAlignment) % kAlignment);
    const uint64_t offset = size_;
    Write(bytes, length);
    return offset;
  }

  Status Finish(const std::string& description) {
    Header header;
    header.description_offset = Add(description.data(), description.size());
    header.description_bytes = description.size();
    header.description_hash = HashBytes(description);
    ok_ = ok_ && std::fseek(file_.get(), 0, SEEK_SET) == 0;
    Write(&header, sizeof(header));
    ok_ = ok_ && std::fclose(file_.release()) == 0;
    return ok_ ? Status::Ok() : FailedPrecondition(StrCat("cannot write ", path_));
  }

 private:
  void Write(const void* bytes, size_t length) {
    ok_ = ok_ && file_ != nullptr && std::fwrite(bytes, 1, length, file_.get()) == length;
    size_ += length;
  }

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  uint64_t size_ = 0;
  bool ok_ = true;
};

class ArchiveWriter {
 public:
  explicit ArchiveWriter(BlobFile& blobs) : blobs_(blobs) {}

  Status Write(const Graph& graph) {
    out_.Text(graph.name);
    out_.Count(graph.value_count());
    for (size_t i = 0; i < graph.value_count(); ++i) {
      const ValueInfo& value = graph.value(static_cast<ValueId>(i));
      out_.Text(value.name);
      WriteType(value.type);
    }
    for (const auto* ids : {&graph.inputs, &graph.outputs, &graph.captures}) WriteIds(*ids);
    out_.Count(graph.initializers.size());
    for (const auto& [id, initializer] : graph.initializers) {
      out_.Number(id);
      ONNXD_RETURN_IF_ERROR(WriteInitializer(initializer));
    }
    out_.Count(graph.nodes.size());
    for (const Node& node : graph.nodes) ONNXD_RETURN_IF_ERROR(WriteNode(node));
    return Status::Ok();
  }

  void Text(std::string_view text) { out_.Text(text); }
  void Count(size_t count) { out_.Count(count); }
  const std::string& bytes() const { return out_.bytes(); }

 private:
  void WriteIds(const std::vector<ValueId>& ids) {
    out_.Count(ids.size());
    for (const ValueId id : ids) out_.Number(id);
  }

  void WriteType(const ValueType& type) {
    out_.Number(static_cast<uint8_t>(type.kind));
    out_.Number(static_cast<int32_t>(type.element));
    out_.Number(static_cast<uint8_t>(type.shape.has_value()));
    if (type.shape) {
      out_.Count(type.shape->size());
      for (const Dimension& dimension : *type.shape) {
        out_.Number(dimension.value);
        out_.Text(dimension.symbol);
      }
    }
    out_.Number(static_cast<uint8_t>(type.inner != nullptr));
    if (type.inner != nullptr) WriteType(*type.inner);
  }

  void WriteShape(const Shape& shape) {
    out_.Count(shape.dims().size());
    for (const int64_t dim : shape) out_.Number(dim);
  }

  void WriteTensor(const Tensor& tensor) {
    out_.Number(static_cast<int32_t>(tensor.type()));
    WriteShape(tensor.shape());
    if (tensor.type() == DataType::kString) {
      for (const std::string& text : tensor.elements<std::string>()) out_.Text(text);
      return;
    }
    out_.Number(blobs_.Add(tensor.raw(), tensor.bytes()));
    out_.Number(HashBytes({static_cast<const char*>(tensor.raw()), tensor.bytes()}));
  }

  Status WriteInitializer(const Initializer& initializer) {
    out_.Number(static_cast<int32_t>(initializer.type()));
    WriteShape(initializer.shape());
    const bool plain = !initializer.released();
    out_.Number(static_cast<uint8_t>(plain));
    if (plain) {
      ONNXD_ASSIGN_OR_RETURN(const Tensor tensor, initializer.Materialize());
      WriteTensor(tensor);
    }
    const Initializer::Forms forms = initializer.forms();
    out_.Count(forms.size());
    for (const auto& [form, tensor] : forms) {
      out_.Text(form);
      WriteTensor(tensor);
    }
    return Status::Ok();
  }

  Status WriteNode(const Node& node) {
    for (const auto* text : {&node.name, &node.domain, &node.op_type}) out_.Text(*text);
    out_.Number(int32_t{node.since_version});
    for (const auto* ids : {&node.inputs, &node.outputs, &node.captures}) WriteIds(*ids);
    out_.Count(node.attributes.entries().size());
    for (const auto& [name, attribute] : node.attributes.entries()) {
      out_.Text(name);
      out_.Number(static_cast<uint8_t>(attribute.index()));
      ONNXD_RETURN_IF_ERROR(
          std::visit([&](const auto& value) { return WriteValue(value); }, attribute));
    }
    return Status::Ok();
  }

  template <typename T>
  Status WriteValue(const T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      out_.Number(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      out_.Text(value);
    } else if constexpr (std::is_same_v<T, Initializer>) {
      return WriteInitializer(value);
    } else if constexpr (std::is_same_v<T, std::shared_ptr<Graph>> ||
                         std::is_same_v<T, FusedGraph>) {
      return Write(*value);
    } else if constexpr (std::is_same_v<T, ValueType>) {
      WriteType(value);
    } else {
      out_.Count(value.size());
      for (const auto& one : value) ONNXD_RETURN_IF_ERROR(WriteValue(one));
    }
    return Status::Ok();
  }

  BlobFile& blobs_;
  ByteWriter out_;
};

class ArchiveReader {
 public:
  ArchiveReader(std::shared_ptr<const MappedFile> file, std::string_view description)
      : file_(std::move(file)), in_(description) {}

  bool Read(Graph& graph, int depth = 0) {
    if (depth > kMaxDepth) return false;
    graph.name = in_.Text();
    const size_t values = in_.Count(1);
    for (size_t i = 0; i < values && in_.ok(); ++i) {
      std::string name = in_.Text();
      graph.AddValue(std::move(name), ReadType());
    }
    for (auto* ids : {&graph.inputs, &graph.outputs, &graph.captures}) ReadIds(*ids);
    const size_t initializers = in_.Count(1);
    for (size_t i = 0; i < initializers && in_.ok(); ++i) {
      const auto id = in_.Number<ValueId>();
      graph.initializers[id] = ReadInitializer();
    }
    const size_t nodes = in_.Count(1);
    for (size_t i = 0; i < nodes && in_.ok(); ++i) {
      graph.nodes.emplace_back();
      if (!ReadNode(graph.nodes.back(), depth)) return false;
    }
    return in_.ok() && sound_;
  }

  std::string Text() { return in_.Text(); }
  size_t Count() { return in_.Count(1); }
  bool at_end() const { return in_.ok() && in_.at_end(); }

 private:
  void ReadIds(std::vector<ValueId>& ids) {
    const size_t count = in_.Count(sizeof(ValueId));
    for (size_t i = 0; i < count; ++i) ids.push_back(in_.Number<ValueId>());
  }

  ValueType ReadType(int depth = 0) {
    ValueType type;
    type.kind = static_cast<ValueType::Kind>(in_.Number<uint8_t>());
    type.element = static_cast<DataType>(in_.Number<int32_t>());
    if (in_.Number<uint8_t>() != 0) {
      type.shape.emplace();
      const size_t rank = in_.Count(sizeof(int64_t));
      for (size_t i = 0; i < rank && in_.ok(); ++i) {
        Dimension dimension(in_.Number<int64_t>());
        dimension.symbol = in_.Text();
        type.shape->push_back(std::move(dimension));
      }
    }
    if (in_.Number<uint8_t>() != 0 && depth < kMaxDepth) {
      type.inner = std::make_shared<const ValueType>(ReadType(depth + 1));
    }
    return type;
  }

  Shape ReadShape() {
    std::vector<int64_t> dims(in_.Count(sizeof(int64_t)));
    for (int64_t& dim : dims) dim = in_.Number<int64_t>();
    if (Shape shape(dims); shape.Validate().ok()) return shape;
    sound_ = false;
    return Shape{0};
  }

  // Points into the mapping.
  Tensor ReadTensor() {
    const auto type = static_cast<DataType>(in_.Number<int32_t>());
    const Shape shape = ReadShape();
    if (type == DataType::kString) return ReadStrings(shape);
    const auto offset = in_.Number<uint64_t>();
    const auto hash = in_.Number<ContentHash>();
    const std::string_view bytes = file_->bytes();
    void* data = const_cast<char*>(bytes.data()) + std::min<uint64_t>(offset, bytes.size());
    Tensor tensor = Tensor::Wrap(type, shape, data, std::const_pointer_cast<MappedFile>(file_));
    const bool fits = in_.ok() && offset % kAlignment == 0 && offset <= bytes.size() &&
                      tensor.bytes() <= bytes.size() - offset;
    if (fits && HashBytes(bytes.substr(offset, tensor.bytes())) == hash) return tensor;
    sound_ = false;
    return Tensor::Of<int32_t>(Shape{0}, {});
  }

  Tensor ReadStrings(const Shape& shape) {
    std::vector<std::string> texts;
    for (int64_t i = 0; i < shape.ElementCount() && in_.ok(); ++i) texts.push_back(in_.Text());
    if (in_.ok()) return Tensor::Of<std::string>(shape, texts);
    return Tensor::Of<int32_t>(Shape{0}, {});
  }

  Initializer ReadInitializer() {
    const auto type = static_cast<DataType>(in_.Number<int32_t>());
    const Shape shape = ReadShape();
    Initializer initializer(type, shape);
    if (in_.Number<uint8_t>() != 0) initializer = Initializer(ReadTensor());
    const size_t forms = in_.Count(1);
    for (size_t i = 0; i < forms && in_.ok(); ++i) {
      const std::string form = in_.Text();
      initializer.AddForm(form, ReadTensor());
    }
    return initializer;
  }

  bool ReadNode(Node& node, int depth) {
    for (auto* text : {&node.name, &node.domain, &node.op_type}) *text = in_.Text();
    node.since_version = in_.Number<int32_t>();
    for (auto* ids : {&node.inputs, &node.outputs, &node.captures}) ReadIds(*ids);
    const size_t attributes = in_.Count(1);
    for (size_t i = 0; i < attributes && in_.ok(); ++i) {
      std::string name = in_.Text();
      Attribute value;
      if (!ReadAttribute(in_.Number<uint8_t>(), value, depth)) return false;
      node.attributes.Set(std::move(name), std::move(value));
    }
    return in_.ok();
  }

  // The alternative with this index of the variant.
  template <size_t I = 0>
  bool ReadAttribute(size_t index, Attribute& out, int depth) {
    if constexpr (I == std::variant_size_v<Attribute>) {
      return false;
    } else {
      if (index != I) return ReadAttribute<I + 1>(index, out, depth);
      std::variant_alternative_t<I, Attribute> value;
      if (!ReadValue(value, depth)) return false;
      out.emplace<I>(std::move(value));
      return true;
    }
  }

  template <typename T>
  bool ReadValue(T& value, int depth) {
    if constexpr (std::is_arithmetic_v<T>) {
      value = in_.Number<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = in_.Text();
    } else if constexpr (std::is_same_v<T, Initializer>) {
      value = ReadInitializer();
    } else if constexpr (std::is_same_v<T, std::shared_ptr<Graph>>) {
      value = std::make_shared<Graph>();
      return Read(*value, depth + 1);
    } else if constexpr (std::is_same_v<T, FusedGraph>) {
      auto graph = std::make_shared<Graph>();
      value = graph;
      return Read(*graph, depth + 1);
    } else if constexpr (std::is_same_v<T, ValueType>) {
      value = ReadType();
    } else {
      const size_t count = in_.Count(1);
      for (size_t i = 0; i < count && in_.ok(); ++i) {
        typename T::value_type one{};
        if (!ReadValue(one, depth)) return false;
        value.push_back(std::move(one));
      }
    }
    return in_.ok();
  }

  std::shared_ptr<const MappedFile> file_;
  ByteReader in_;
  bool sound_ = true;
};

}  // namespace

Status WriteGraphArchive(const std::string& path, const std::vector<const Graph*>& graphs,
                         std::string_view facts) {
  BlobFile blobs(path);
  ArchiveWriter writer(blobs);
  writer.Text(facts);
  writer.Count(graphs.size());
  for (const Graph* graph : graphs) ONNXD_RETURN_IF_ERROR(writer.Write(*graph));
  return blobs.Finish(writer.bytes());
}

Result<GraphArchive> ReadGraphArchive(const std::string& path) {
  ONNXD_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  const std::string_view bytes = file->bytes();
  Header header;
  const Header expected;
  if (bytes.size() < sizeof(header)) return Damaged(path);
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, expected.magic, sizeof(header.magic)) != 0 ||
      header.description_offset > bytes.size() ||
      header.description_bytes != bytes.size() - header.description_offset) {
    return Damaged(path);
  }
  const std::string_view description = bytes.substr(header.description_offset);
  if (HashBytes(description) != header.description_hash) return Damaged(path);
  ArchiveReader reader(file, description);
  GraphArchive archive;
  archive.facts = reader.Text();
  archive.graphs.resize(reader.Count());
  for (Graph& graph : archive.graphs) {
    if (!reader.Read(graph)) return Damaged(path);
  }
  if (!reader.at_end()) return Damaged(path);
  return archive;
}

}  // namespace onnxd
