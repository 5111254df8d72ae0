#include "runtime/format/model_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "runtime/format/model_writer.h"
#include "runtime/format/value_file.h"
#include "runtime/format/wire_writer.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

std::string EmbeddedModel(const std::string& name) {
  return *ReadFile((EmbeddedModels() / name / "1" / "model.onnx").string(), 1 << 24);
}

// The bytes of a ModelProto around a GraphProto.
std::string ModelOf(const std::function<void(WireWriter&)>& graph) {
  WireWriter model;
  model.Varint(1, 8);
  model.Message(7, graph);
  model.Message(8, [](WireWriter& opset) { opset.Varint(2, 17); });
  return std::move(model).Take();
}

void AddNode(WireWriter& graph, const std::string& op, const std::vector<std::string>& inputs,
             const std::vector<std::string>& outputs) {
  graph.Message(1, [&](WireWriter& node) {
    for (const auto& input : inputs) node.Bytes(1, input);
    for (const auto& output : outputs) node.Bytes(2, output);
    node.Bytes(4, op);
  });
}

void AddValue(WireWriter& graph, uint32_t field, const std::string& name) {
  graph.Message(field, [&](WireWriter& value) {
    value.Bytes(1, name);
    value.Message(2, [](WireWriter& type) {
      type.Message(1, [](WireWriter& tensor) {
        tensor.Varint(1, 1);
        tensor.Message(2, [](WireWriter& shape) {
          shape.Message(1, [](WireWriter& dim) { dim.Varint(1, 2); });
        });
      });
    });
  });
}

// Relu of w + x, as a file of that IR version states it: before version 4 every initializer is a
// graph input too, before version 3 there is no opset_import.
std::string FileOfIrVersion(uint64_t ir_version) {
  WireWriter model;
  model.Varint(1, ir_version);
  model.Message(7, [&](WireWriter& graph) {
    AddNode(graph, "Add", {"x", "w"}, {"sum"});
    AddNode(graph, "Relu", {"sum"}, {"y"});
    graph.Message(5, [](WireWriter& tensor) {
      tensor.Varint(1, 2);
      tensor.Varint(2, 1);
      const float elements[2] = {1.0f, -5.0f};
      tensor.Bytes(9, std::string(reinterpret_cast<const char*>(elements), sizeof(elements)));
      tensor.Bytes(8, "w");
    });
    AddValue(graph, 11, "x");
    if (ir_version < 4) AddValue(graph, 11, "w");
    AddValue(graph, 12, "y");
  });
  if (ir_version >= 3) {
    model.Message(8, [&](WireWriter& opset) { opset.Varint(2, ir_version < 8 ? 7 : 17); });
  }
  return std::move(model).Take();
}

TEST(ModelReader, RunsFilesOfEveryIrVersion) {
  for (uint64_t version = 1; version <= 14; ++version) {
    const auto session = InferenceSession::LoadBytes(FileOfIrVersion(version), DefaultSession());
    ASSERT_TRUE(session.ok()) << version << ": " << session.status().ToString();
    ASSERT_EQ((*session)->inputs().size(), 1u) << version;
    const std::vector<Value> inputs = {Floats(Shape{2}, {2, 3})};
    const auto outputs = (*session)->Run(inputs, {});
    ASSERT_TRUE(outputs.ok()) << version << ": " << outputs.status().ToString();
    EXPECT_EQ((*outputs)[0].tensor().data<float>()[0], 3.0f) << version;
    EXPECT_EQ((*outputs)[0].tensor().data<float>()[1], 0.0f) << version;
  }
}

TEST(ModelReader, SurvivesTruncationAtEveryOffset) {
  const std::string whole = EmbeddedModel("iris_forest");
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto model = ReadModelBytes(whole.substr(0, size));
    if (model.ok()) {  // only where a field ends and what follows was optional
      EXPECT_FALSE(model->graph.outputs.empty());
    }
  }
}

TEST(ModelReader, SurvivesBitFlips) {
  const std::string whole = EmbeddedModel("iris_forest");
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = whole;
    for (int flips = 0; flips < 3; ++flips) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    }
    auto model = ReadModelBytes(damaged);
    if (model.ok()) {
      (void)InferenceSession::FromModel(std::move(*model), DefaultSession()).ok();
    }
  }
}

TEST(ModelReader, SurvivesRandomBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_FALSE(ReadModelBytes(bytes).ok());
  }
}

struct BadModel {
  const char* name;
  std::string bytes;
  const char* message;
};

TEST(ModelReader, SaysWhatIsWrong) {
  const auto relu = [](const std::string& in, const std::string& out) {
    return [=](WireWriter& graph) {
      AddNode(graph, "Relu", {in}, {out});
      AddValue(graph, 11, "x");
      AddValue(graph, 12, "y");
    };
  };
  std::string deep;
  {
    std::string inner = "\x0a\x00";
    for (int i = 0; i < 40; ++i) {
      WireWriter graph;
      graph.Message(1, [&](WireWriter& node) {
        node.Bytes(4, "If");
        node.Message(5, [&](WireWriter& attribute) {
          attribute.Bytes(1, "then_branch");
          attribute.Bytes(6, inner);
          attribute.Varint(20, 5);
        });
      });
      inner = std::move(graph).Take();
    }
    WireWriter model;
    model.Varint(1, 8);
    model.Bytes(7, inner);
    deep = std::move(model).Take();
  }
  const BadModel cases[] = {
      {"empty", "", "the file is empty"},
      {"no graph", std::string("\x08\x08", 2), "it has no graph"},
      {"undefined input", ModelOf(relu("z", "y")), "uses 'z'"},
      {"undefined output", ModelOf(relu("x", "w")), "graph output 'y'"},
      {"unknown operator", ModelOf([](WireWriter& graph) {
         AddNode(graph, "Frobnicate", {"x"}, {"y"});
         AddValue(graph, 11, "x");
         AddValue(graph, 12, "y");
       }),
       "Frobnicate"},
      {"cycle", ModelOf([](WireWriter& graph) {
         AddNode(graph, "Add", {"x", "b"}, {"a"});
         AddNode(graph, "Relu", {"a"}, {"b"});
         AddValue(graph, 11, "x");
         AddValue(graph, 12, "b");
       }),
       "cycle"},
      {"two producers", ModelOf([](WireWriter& graph) {
         AddNode(graph, "Relu", {"x"}, {"y"});
         AddNode(graph, "Relu", {"x"}, {"y"});
         AddValue(graph, 11, "x");
         AddValue(graph, 12, "y");
       }),
       "'y' is defined twice"},
      {"subgraphs too deep", deep, "nested deeper"},
      {"short initializer", ModelOf([](WireWriter& graph) {
         graph.Message(5, [](WireWriter& tensor) {
           tensor.Varint(1, 4);
           tensor.Varint(2, 1);
           tensor.Bytes(8, "w");
           tensor.Bytes(9, "123");
         });
         AddValue(graph, 12, "w");
       }),
       "tensor 'w': raw data has 3 bytes, float[4] needs 16"},
      {"giant initializer", ModelOf([](WireWriter& graph) {
         graph.Message(5, [](WireWriter& tensor) {
           tensor.Varint(1, uint64_t{1} << 40);
           tensor.Varint(1, uint64_t{1} << 40);
           tensor.Varint(2, 1);
           tensor.Bytes(8, "w");
         });
       }),
       "too many elements"},
      {"external data in bytes", ModelOf([](WireWriter& graph) {
         graph.Message(5, [](WireWriter& tensor) {
           tensor.Varint(1, 1);
           tensor.Varint(2, 1);
           tensor.Bytes(8, "w");
           tensor.Varint(14, 1);
         });
       }),
       "external data is refused"},
  };
  for (const BadModel& bad : cases) {
    const auto model = ReadModelBytes(bad.bytes);
    ASSERT_FALSE(model.ok()) << bad.name;
    EXPECT_NE(model.status().message().find(bad.message), std::string_view::npos)
        << bad.name << ": " << model.status().ToString();
  }
}

TEST(ModelReader, RefusesAmplificationByItsBudget) {
  // Eight million empty nodes in 16 MB would take gigabytes as objects.
  std::string nodes;
  for (int i = 0; i < 8000000; ++i) nodes += std::string("\x0a\x00", 2);
  WireWriter model;
  model.Varint(1, 8);
  model.Bytes(7, nodes);
  const auto read = ReadModelBytes(std::move(model).Take());
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), StatusCode::kResourceExhausted) << read.status().ToString();
}

TEST(ModelReader, InlinesFunctionsAndRefusesRecursion) {
  const auto with_function = [](const std::string& body_op, const std::string& body_domain) {
    WireWriter model;
    model.Varint(1, 8);
    model.Message(7, [](WireWriter& graph) {
      graph.Message(1, [](WireWriter& node) {
        node.Bytes(1, "x");
        node.Bytes(2, "y");
        node.Bytes(4, "Twice");
        node.Bytes(7, "local");
      });
      AddValue(graph, 11, "x");
      AddValue(graph, 12, "y");
    });
    model.Message(8, [](WireWriter& opset) { opset.Varint(2, 17); });
    model.Message(25, [&](WireWriter& function) {
      function.Bytes(1, "Twice");
      function.Bytes(10, "local");
      function.Bytes(4, "a");
      function.Bytes(5, "b");
      function.Message(7, [&](WireWriter& node) {
        node.Bytes(1, "a");
        if (body_domain.empty()) node.Bytes(1, "a");
        node.Bytes(2, "b");
        node.Bytes(4, body_op);
        node.Bytes(7, body_domain);
      });
      function.Message(9, [](WireWriter& opset) { opset.Varint(2, 17); });
    });
    return std::move(model).Take();
  };
  auto session = InferenceSession::LoadBytes(with_function("Add", ""), DefaultSession());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const std::vector<Value> inputs = {Floats(Shape{2}, {1, 2})};
  const auto outputs = (*session)->Run(inputs, {});
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ((*outputs)[0].tensor().data<float>()[1], 4.0f);
  const auto recursive = ReadModelBytes(with_function("Twice", "local"));
  ASSERT_FALSE(recursive.ok());
  EXPECT_NE(recursive.status().message().find("calls itself"), std::string_view::npos);
}

TEST(ModelWriter, WritesWhatTheReaderRead) {
  for (const char* name : {"iris_forest", "digits_cnn", "digits_rows"}) {
    const auto model = ReadModelBytes(EmbeddedModel(name));
    ASSERT_TRUE(model.ok());
    const auto bytes = WriteModel(*model);
    ASSERT_TRUE(bytes.ok());
    const auto again = ReadModelBytes(*bytes);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(again->graph.nodes.size(), model->graph.nodes.size());
    EXPECT_EQ(*WriteModel(*again), *bytes);
  }
}

TEST(ValueFile, RoundTripsEveryKind) {
  auto map = std::make_shared<Map>();
  map->keys = std::vector<std::string>{"a", "b"};
  map->values = {Tensor::Scalar(1.5f), Tensor::Scalar(2.5f)};
  auto sequence = std::make_shared<Sequence>();
  sequence->elements = {Value(std::shared_ptr<const Map>(map))};
  const auto bytes = SerializeValue(Value(std::shared_ptr<const Sequence>(sequence)));
  ASSERT_TRUE(bytes.ok());
  const auto back = ParseValue(*bytes, ValueType::SequenceOf(ValueType{}));
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  const Map* read = back->sequence()->elements[0].map();
  EXPECT_EQ(std::get<std::vector<std::string>>(read->keys)[1], "b");
  EXPECT_EQ(*read->values[1].tensor().data<float>(), 2.5f);
}

TEST(Npy, RoundTripsAndRefusesBadHeaders) {
  const Tensor tensor = Ints(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  const auto bytes = SerializeNpy(tensor);
  ASSERT_TRUE(bytes.ok());
  const auto back = ParseNpy(*bytes);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->shape(), (Shape{2, 3}));
  EXPECT_EQ(back->data<int64_t>()[5], 6);
  for (size_t size = 0; size < bytes->size(); ++size) {
    EXPECT_FALSE(ParseNpy(std::string_view(*bytes).substr(0, size)).ok());
  }
}

}  // namespace
}  // namespace onnxd
