// ai.onnx.ml operators over keys and features: LabelEncoder-1 to -4, CategoryMapper-1, CastMap-1,
// DictVectorizer-1, FeatureVectorizer-1, ArrayFeatureExtractor-1, Binarizer-1, Imputer-1,
// OneHotEncoder-1.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <variant>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/key_index.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

Status Fail(const Node& node, std::string_view why) {
  return InvalidArgument(StrCat(Describe(node), ": ", why));
}

// Keys or values of a list, however the node spells it.
std::vector<Key> Keys(const Tensor& tensor) {
  std::vector<Key> keys;
  if (tensor.type() == DataType::kString) {
    for (const std::string& text : tensor.elements<std::string>()) keys.emplace_back(text);
  } else if (IsFloatingPoint(tensor.type())) {
    for (const double number : ElementsAs<double>(tensor)) keys.emplace_back(number);
  } else {
    for (const int64_t number : ElementsAs<int64_t>(tensor)) keys.emplace_back(number);
  }
  return keys;
}

Result<std::vector<Key>> Keys(const Attributes& a, const std::string& prefix) {
  if (const Initializer* list = a.TensorValue(prefix + "_tensor")) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor tensor, list->Materialize());
    return Keys(tensor);
  }
  std::vector<Key> keys;
  for (const int64_t key : a.Ints(prefix + "_int64s")) keys.emplace_back(key);
  for (const float key : a.Floats(prefix + "_floats")) keys.emplace_back(static_cast<double>(key));
  for (std::string& key : a.Strings(prefix + "_strings")) keys.emplace_back(std::move(key));
  return keys;
}

class Encoder {
 public:
  static Result<Encoder> Make(const Node& node, DataType out) {
    Encoder e;
    std::vector<Key> keys, values;
    const Attributes& a = node.attributes;
    if (a.Has("classes_strings") || a.Has("cats_strings")) {
      ONNXD_RETURN_IF_ERROR(AddClasses(node, out, keys, values));
    } else {
      ONNXD_ASSIGN_OR_RETURN(keys, Keys(a, "keys"));
      ONNXD_ASSIGN_OR_RETURN(values, Keys(a, "values"));
      if (keys.size() != values.size()) return Fail(node, "keys and values differ in number");
    }
    ONNXD_ASSIGN_OR_RETURN(Key fallback, Fallback(a, out));
    values.push_back(std::move(fallback));
    e.keys_ = KeyIndex(keys);
    ONNXD_ASSIGN_OR_RETURN(e.values_, ValuesOf(out, values));
    return e;
  }

  // Of numbers, to numbers.
  void Encode(DataType type, const void* elements, int64_t count, void* out) const {
    DispatchWidth(values_.type(), [&]<typename T>() {
      const auto* values = static_cast<const T*>(values_.raw());
      const T* const fallback = values + values_.ElementCount() - 1;
      auto* const to = static_cast<T*>(out);
      keys_.Find(type, elements, 0, count, false,
                 [&](int64_t i, int32_t place) { to[i] = place < 0 ? *fallback : values[place]; });
    });
  }

  Result<Tensor> Encode(const Tensor& x) const {
    ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(values_.type(), x.shape()));
    if (values_.type() != DataType::kString) {
      Encode(x.type(), x.raw(), x.ElementCount(), out.mutable_raw());
      return out;
    }
    const auto* values = values_.data<std::string>();
    const std::string& fallback = values[values_.ElementCount() - 1];
    auto* const to = out.mutable_data<std::string>();
    keys_.Find(x.type(), x.raw(), 0, x.ElementCount(), false,
               [&](int64_t i, int32_t place) { to[i] = place < 0 ? fallback : values[place]; });
    return out;
  }

 private:
  // Both directions between strings and integers.
  static Status AddClasses(const Node& node, DataType out, std::vector<Key>& keys,
                           std::vector<Key>& values) {
    const auto names = node.attributes.Strings(
        node.attributes.Has("cats_strings") ? "cats_strings" : "classes_strings");
    const auto numbers = node.attributes.Ints("cats_int64s");
    if (!numbers.empty() && numbers.size() != names.size()) {
      return Fail(node, "cats_int64s and cats_strings differ in number");
    }
    for (size_t i = 0; i < names.size(); ++i) {
      keys.emplace_back(names[i]);
      values.emplace_back(numbers.empty() ? static_cast<int64_t>(i) : numbers[i]);
    }
    if (out == DataType::kString) std::swap(keys, values);
    return Status::Ok();
  }

  static Result<Key> Fallback(const Attributes& a, DataType out) {
    if (const Initializer* fallback = a.TensorValue("default_tensor")) {
      ONNXD_ASSIGN_OR_RETURN(const Tensor tensor, fallback->Materialize());
      const auto keys = Keys(tensor);
      if (keys.size() == 1) return keys[0];
    }
    if (out == DataType::kString) return Key(a.String("default_string", "_Unused"));
    if (IsFloatingPoint(out)) return Key(static_cast<double>(a.Float("default_float", -0.0f)));
    return Key(a.Int("default_int64", -1));
  }

  // As elements of `out`: those of another kind are empty, or 0.
  static Result<Tensor> ValuesOf(DataType out, const std::vector<Key>& values) {
    const Shape shape{static_cast<int64_t>(values.size())};
    if (out == DataType::kString) {
      ONNXD_ASSIGN_OR_RETURN(Tensor texts, Tensor::Create(out, shape));
      for (size_t i = 0; i < values.size(); ++i) {
        const auto* text = std::get_if<std::string>(&values[i]);
        if (text != nullptr) texts.mutable_data<std::string>()[i] = *text;
      }
      return texts;
    }
    std::vector<double> reals;
    std::vector<int64_t> integers;
    for (const Key& value : values) {
      const auto* integer = std::get_if<int64_t>(&value);
      const auto* real = std::get_if<double>(&value);
      integers.push_back(integer != nullptr ? *integer : 0);
      reals.push_back(real != nullptr ? *real : static_cast<double>(integers.back()));
    }
    return IsFloatingPoint(out) ? TensorFrom(out, shape, reals) : TensorFrom(out, shape, integers);
  }

  KeyIndex keys_;
  Tensor values_;  // by key, then the one of no key
};

// Columns of rows: out[row, i] = x[row, positions[i]].
struct ColumnPick {
  int64_t rows, width;
  std::vector<int64_t> positions;

  // kInvalidArgument where a position is outside of the rows.
  static Result<ColumnPick> Make(const Node& node, const Shape& shape,
                                 std::vector<int64_t> positions) {
    if (shape.rank() < 1) return Fail(node, "the input is a scalar");
    const int64_t width = shape[shape.rank() - 1];
    for (const int64_t at : positions) {
      if (at < 0 || at >= width) return Fail(node, StrCat("index ", at, " is outside ", width));
    }
    return ColumnPick{shape.ElementCount(0, shape.rank() - 1), width, std::move(positions)};
  }

  template <typename T>
  void Run(const T* x, T* out) const {
    for (int64_t row = 0; row < rows; ++row, x += width) {
      for (const int64_t at : positions) *out++ = x[at];
    }
  }
};

Result<Values> ArrayFeatureExtractor(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  ONNXD_ASSIGN_OR_RETURN(const ColumnPick pick,
                         ColumnPick::Make(node, shape, ElementsAs<int64_t>(inputs[1].tensor())));
  std::vector<int64_t> dims(shape.begin(), shape.end() - 1);
  if (dims.empty()) dims.push_back(1);
  dims.push_back(static_cast<int64_t>(pick.positions.size()));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), Shape(dims)));
  const auto run = [&]<typename T>() { pick.Run(x.data<T>(), out.mutable_data<T>()); };
  if (x.type() == DataType::kString) {
    run.operator()<std::string>();
  } else if (!DispatchWidth(x.type(), run)) {
    return DeclineType("ArrayFeatureExtractor", x.type());
  }
  return Values{std::move(out)};
}

// What Imputer puts in place of missing elements of T.
template <typename T>
struct Replacement {
  T missing;               // NaN: those that are none
  std::vector<T> imputed;  // by column, or one for all as the node has it

  static Replacement Make(const Attributes& a) {
    Replacement made;
    std::vector<double> reals;
    for (const float value : a.Floats("imputed_value_floats")) reals.push_back(value);
    const std::vector<int64_t> integers = a.Ints("imputed_value_int64s");
    for (const double value : reals) made.imputed.push_back(Narrowed(value));
    for (const int64_t value : integers) made.imputed.push_back(static_cast<T>(value));
    made.missing = std::is_integral_v<T> ? static_cast<T>(a.Int("replaced_value_int64", 0))
                                         : Narrowed(a.Float("replaced_value_float", 0));
    return made;
  }

  // Requires one for each column.
  void Run(const T* x, int64_t rows, int64_t width, T* out) const {
    const auto replace = [&](auto is_missing) {
      const T* const instead = imputed.data();
      for (int64_t row = 0; row < rows; ++row) {
        const T* const from = x + row * width;
        T* __restrict to = out + row * width;
        for (int64_t column = 0; column < width; ++column) {
          const T value = from[column], other = instead[column];
          to[column] = is_missing(value) ? other : value;
        }
      }
    };
    if (missing != missing) {
      replace([](T value) { return value != value; });
    } else {
      replace([this](T value) { return value == missing; });
    }
  }

 private:
  static T Narrowed(double value) {
    if constexpr (std::is_integral_v<T>) return Truncated<T>(value);
    return static_cast<T>(value);
  }
};

class OneHot {
 public:
  static OneHot Make(const Node& node) {
    OneHot made;
    std::vector<Key> keys;
    for (std::string& name : node.attributes.Strings("cats_strings")) {
      keys.emplace_back(std::move(name));
    }
    for (const int64_t number : node.attributes.Ints("cats_int64s")) keys.emplace_back(number);
    made.width_ = static_cast<int64_t>(keys.size());
    made.zeros_ = node.attributes.Int("zeros", 1) != 0;
    made.keys_ = KeyIndex(keys);
    return made;
  }

  int64_t width() const { return width_; }

  // out: [count, width]
  Status Encode(const Node& node, DataType type, const void* elements, int64_t count,
                float* out) const {
    // Zeros are still near when ones are put among them.
    constexpr int64_t kNear = 8192;
    const int64_t some = std::max<int64_t>(1, kNear / std::max<int64_t>(1, width_));
    bool are_known = true;
    for (int64_t first = 0; first < count; first += some) {
      const int64_t end = std::min(count, first + some);
      std::fill(out + first * width_, out + end * width_, 0.0f);
      keys_.Find(type, elements, first, end, true, [&](int64_t i, int32_t place) {
        are_known = are_known && place >= 0;
        if (place >= 0) out[i * width_ + place] = 1;
      });
    }
    return are_known || zeros_ ? Status::Ok() : Fail(node, "a category is unknown");
  }

 private:
  KeyIndex keys_;
  int64_t width_ = 0;
  bool zeros_ = true;  // of an unknown category, rather than an error
};

Result<Values> FeatureVectorizer(const Node& node, std::span<const Value> inputs) {
  const auto widths = node.attributes.Ints("inputdimensions");
  int64_t rows = -1, width = 0;
  std::vector<std::vector<float>> columns;
  std::vector<int64_t> taken;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i].tensor();
    const int rank = x.shape().rank();
    const int64_t own_rows = rank > 1 ? x.shape()[0] : 1;
    if (rows >= 0 && own_rows != rows) return Fail(node, "inputs differ in their number of rows");
    rows = own_rows;
    columns.push_back(ElementsAs<float>(x));
    const int64_t have = own_rows == 0 ? 0 : x.ElementCount() / own_rows;
    taken.push_back(i < widths.size() ? widths[i] : have);
    if (taken.back() < 0 || taken.back() > (int64_t{1} << 30)) {
      return Fail(node, "inputdimensions is out of range");
    }
    width += taken.back();
  }
  ONNXD_ASSIGN_OR_RETURN(
      Tensor out, Tensor::Create(DataType::kFloat, Shape{std::max<int64_t>(rows, 0), width}));
  float* to = out.mutable_data<float>();
  for (int64_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < columns.size(); ++i) {
      const int64_t have = static_cast<int64_t>(columns[i].size()) / rows;
      const int64_t copied = std::min(have, taken[i]);
      std::copy_n(columns[i].begin() + r * have, copied, to);
      std::fill_n(to + copied, taken[i] - copied, 0.0f);
      to += taken[i];
    }
  }
  return Values{std::move(out)};
}

Result<Values> DictVectorizer(const Node& node, std::span<const Value> inputs, DataType type) {
  const Map* map = inputs[0].map();
  if (map == nullptr) return Fail(node, "the input is no map");
  std::map<Key, size_t> columns;
  const auto add = [&](Key key) { columns.emplace(std::move(key), columns.size()); };
  for (const std::string& name : node.attributes.Strings("string_vocabulary")) add(name);
  for (const int64_t number : node.attributes.Ints("int64_vocabulary")) add(number);
  std::vector<double> out(columns.size(), 0);
  std::vector<std::string> texts(columns.size());
  const auto place = [&](const auto& keys) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto found = columns.find(Key(keys[i]));
      if (found == columns.end() || !map->values[i].is_tensor()) continue;
      const Tensor& value = map->values[i].tensor();
      if (value.ElementCount() != 1) continue;
      if (value.type() == DataType::kString) {
        texts[found->second] = *value.data<std::string>();
      } else {
        out[found->second] = ElementsAs<double>(value)[0];
      }
    }
  };
  std::visit(place, map->keys);
  const Shape shape{1, static_cast<int64_t>(columns.size())};
  if (type != DataType::kString) return OneValue(TensorFrom(type, shape, out));
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(type, shape));
  std::move(texts.begin(), texts.end(), tensor.mutable_data<std::string>());
  return Values{std::move(tensor)};
}

// A map from integers to values becomes a row, by order of keys or by position.
Result<Values> CastMap(const Node& node, std::span<const Value> inputs, DataType type) {
  const Map* map = inputs[0].map();
  const auto* keys = map == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(&map->keys);
  if (keys == nullptr) return Fail(node, "the input is no map with integer keys");
  const bool sparse = node.attributes.String("map_form", "DENSE") == "SPARSE";
  std::map<int64_t, const Tensor*> sorted;
  for (size_t i = 0; i < keys->size(); ++i) {
    if (map->values[i].is_tensor()) sorted[(*keys)[i]] = &map->values[i].tensor();
  }
  int64_t width = sparse ? node.attributes.Int("max_map", 1) : static_cast<int64_t>(sorted.size());
  if (width < 0 || width > (int64_t{1} << 30)) return Fail(node, "max_map is out of range");
  std::vector<std::string> texts(static_cast<size_t>(width), type == DataType::kString ? "0" : "");
  std::vector<double> numbers(static_cast<size_t>(width), 0);
  int64_t next = 0;
  for (const auto& [key, value] : sorted) {
    const int64_t at = sparse ? key : next++;
    if (at < 0 || at >= width) return Fail(node, StrCat("key ", key, " is outside ", width));
    const auto cell = static_cast<size_t>(at);
    if (value->type() == DataType::kString) {
      texts[cell] = *value->data<std::string>();
      numbers[cell] = std::strtod(texts[cell].c_str(), nullptr);
    } else {
      numbers[cell] = ElementsAs<double>(*value).at(0);
      texts[cell] = StrCat(numbers[cell]);
    }
  }
  const Shape shape{1, width};
  if (type != DataType::kString) return OneValue(TensorFrom(type, shape, numbers));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(type, shape));
  std::move(texts.begin(), texts.end(), out.mutable_data<std::string>());
  return Values{std::move(out)};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeLabelEncoder(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(Encoder made, Encoder::Make(info.node, info.OutputType(0)));
  auto encoder = std::make_shared<const Encoder>(std::move(made));
  const DataType type = info.InputType(0);
  if (!IsNumber(type) || !IsNumber(info.OutputType(0))) {
    return MakeEagerKernel([encoder](const Node&, std::span<const Value> inputs) {
      return OneValue(encoder->Encode(inputs[0].tensor()));
    });
  }
  return MakeKernel([encoder, type](const PrepareContext& context) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    prepared.compute = [=, count = context.InputShape(0).ElementCount()](const KernelContext& k) {
      encoder->Encode(type, k.input<void>(0), count, k.output<void>(0));
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeOneHotEncoder(const KernelInfo& info) {
  const auto encoder = std::make_shared<const OneHot>(OneHot::Make(info.node));
  const DataType type = info.InputType(0);
  if (IsNumber(type)) {
    return MakeKernel([encoder, type](const PrepareContext& context) -> Result<PreparedKernel> {
      PreparedKernel prepared;
      prepared.compute = [=, &node = context.node,
                          count = context.InputShape(0).ElementCount()](const KernelContext& k) {
        return encoder->Encode(node, type, k.input<void>(0), count, k.output<float>(0));
      };
      return prepared;
    });
  }
  return MakeEagerKernel(
      [encoder](const Node& node, std::span<const Value> inputs) -> Result<Values> {
        const Tensor& x = inputs[0].tensor();
        Shape shape = x.shape();
        shape.Append(encoder->width());
        ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kFloat, shape));
        ONNXD_RETURN_IF_ERROR(
            encoder->Encode(node, x.type(), x.raw(), x.ElementCount(), out.mutable_data<float>()));
        return Values{std::move(out)};
      });
}

Result<std::unique_ptr<Kernel>> MakeArrayFeatureExtractor(const KernelInfo& info) {
  const Initializer* constant = info.constant_input(1);
  const DataType type = info.InputType(0);
  if (constant == nullptr || !IsMovable(type)) return MakeEagerKernel(ArrayFeatureExtractor);
  ONNXD_ASSIGN_OR_RETURN(const Tensor positions, constant->Materialize());
  return MakeKernel([type, columns = ElementsAs<int64_t>(positions)](
                        const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(ColumnPick pick,
                           ColumnPick::Make(context.node, context.InputShape(0), columns));
    PreparedKernel prepared;
    prepared.compute = [type, pick = std::move(pick)](const KernelContext& k) {
      DispatchWidth(type, [&]<typename T>() { pick.Run(k.input<T>(0), k.output<T>(0)); });
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeBinarizer(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType(info.node.op_type, type);
  return MakeKernel([type](const PrepareContext& context) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    prepared.compute = [type, threshold = context.node.attributes.Float("threshold", 0),
                        count = context.InputShape(0).ElementCount()](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        const T* x = k.input<T>(0);
        T* out = k.output<T>(0);
        for (int64_t i = 0; i < count; ++i) {
          out[i] = static_cast<double>(x[i]) > static_cast<double>(threshold) ? T(1) : T(0);
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeImputer(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType(info.node.op_type, type);
  return MakeKernel([type](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    const int64_t width = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
    const int64_t rows = width == 0 ? 0 : shape.ElementCount() / width;
    PreparedKernel prepared;
    Status status = Status::Ok();
    DispatchNumber(type, [&]<typename T>() {
      auto made = Replacement<T>::Make(context.node.attributes);
      const auto count = static_cast<int64_t>(made.imputed.size());
      if (count != 1 && count != width) {
        status = Fail(context.node, StrCat(count, " imputed values for ", width, " features"));
        return;
      }
      if (count == 1) made.imputed.resize(static_cast<size_t>(width), made.imputed[0]);
      prepared.compute = [=, made = std::move(made)](const KernelContext& k) {
        made.Run(k.input<T>(0), rows, width, k.output<T>(0));
        return Status::Ok();
      };
    });
    ONNXD_RETURN_IF_ERROR(status);
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeDictVectorizer(const KernelInfo& info) {
  return MakeEagerKernel([type = info.OutputType(0)](const Node& node, std::span<const Value> in) {
    return DictVectorizer(node, in, type);
  });
}

Result<std::unique_ptr<Kernel>> MakeCastMap(const KernelInfo& info) {
  return MakeEagerKernel([type = info.OutputType(0)](const Node& node, std::span<const Value> in) {
    return CastMap(node, in, type);
  });
}

#define EAGER(name) \
  Result<std::unique_ptr<Kernel>> Make##name(const KernelInfo&) { return MakeEagerKernel(name); }
EAGER(FeatureVectorizer)
#undef EAGER

}  // namespace onnxd
