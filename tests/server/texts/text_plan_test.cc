#include "server/texts/text_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/providers/default_providers.h"

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

// Words are tokens: a is 1, b is 2, others are 3; [CLS], 4, stands before them; 0 is padding.
constexpr const char* kTokenizer = R"({
  "added_tokens": [{"id": 0, "content": "[PAD]", "special": true},
                   {"id": 4, "content": "[CLS]", "special": true}],
  "pre_tokenizer": {"type": "Whitespace"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [4], "tokens": ["[CLS]"]}}},
  "model": {"type": "WordLevel", "unk_token": "c",
            "vocab": {"[PAD]": 0, "a": 1, "b": 2, "c": 3, "[CLS]": 4}}
})";

TensorSignature Signature(const std::string& name, DataType type, std::vector<int64_t> dims) {
  TensorSignature signature{name, {}};
  signature.type.kind = ValueType::Kind::kTensor;
  signature.type.element = type;
  signature.type.shape.emplace();
  for (const int64_t dim : dims) {
    Dimension dimension;
    dimension.value = dim;
    signature.type.shape->push_back(dimension);
  }
  return signature;
}

class TextPlanTest : public testing::Test {
 protected:
  TextPlanTest() {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    EXPECT_TRUE(WriteFile((folder_ / "tokenizer.json").string(), kTokenizer).ok());
  }
  ~TextPlanTest() override { std::filesystem::remove_all(folder_); }

  Result<std::shared_ptr<const TextPlan>> Make() {
    SessionOptions options;
    options.providers = *MakeProviders({"cpu"});
    return MakeTextPlan(settings_, folder_.string(), inputs_, outputs_, std::move(options));
  }

  std::filesystem::path folder_;
  TextSettings settings_{"tokenizer.json", 0, false, "", false};
  std::vector<TensorSignature> inputs_ = {Signature("factor", DataType::kFloat, {-1}),
                                          Signature("attention_mask", DataType::kFloat, {-1, -1}),
                                          Signature("input_ids", DataType::kInt64, {-1, -1})};
  std::vector<TensorSignature> outputs_ = {Signature("y", DataType::kFloat, {-1, -1, 2})};
};

Value Texts(std::vector<std::string> texts) {
  return Tensor::Of<std::string>(Shape{static_cast<int64_t>(texts.size())}, texts);
}

TEST_F(TextPlanTest, TextsTakeThePlaceOfTokens) {
  const auto plan = Make();
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_EQ((*plan)->client_inputs.size(), 2u);
  EXPECT_EQ((*plan)->client_inputs[0].name, "text");
  EXPECT_EQ(ToString((*plan)->client_inputs[0].type), "string[?]");
  EXPECT_EQ((*plan)->client_inputs[1].name, "factor");
  const std::vector<Value> client = {Texts({"a b", "b"}),
                                     Tensor::Of<float>(Shape{2}, {5.0f, 6.0f})};
  const auto inputs = TokensOf(**plan, client, {});
  ASSERT_TRUE(inputs.ok()) << inputs.status().ToString();
  EXPECT_THAT((*inputs)[0].tensor().elements<float>(), ElementsAre(5, 6));
  EXPECT_THAT((*inputs)[1].tensor().elements<float>(), ElementsAre(1, 1, 1, 1, 1, 0));
  EXPECT_THAT((*inputs)[2].tensor().elements<int64_t>(), ElementsAre(4, 1, 2, 4, 2, 0));
  ASSERT_EQ(inputs->size(), 4u);
  EXPECT_THAT((*inputs)[3].tensor().elements<int64_t>(), ElementsAre(1, 1, 1, 1, 1, 0));
}

TEST_F(TextPlanTest, AModelOfOneLengthGetsIt) {
  inputs_[2] = Signature("input_ids", DataType::kInt64, {-1, 3});
  const auto plan = Make();
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const std::vector<Value> client = {Texts({"a b a b", ""}),
                                     Tensor::Of<float>(Shape{2}, {5.0f, 6.0f})};
  const auto inputs = TokensOf(**plan, client, {});
  ASSERT_TRUE(inputs.ok()) << inputs.status().ToString();
  EXPECT_THAT((*inputs)[2].tensor().elements<int64_t>(), ElementsAre(4, 1, 2, 4, 0, 0));
}

TEST_F(TextPlanTest, LengthsToPadToDouble) {
  const auto padding = [&] { return TextPadding(**Make(), inputs_); };
  EXPECT_THAT(padding(), IsEmpty());  // no name
  (*inputs_[2].type.shape)[1].symbol = (*inputs_[1].type.shape)[1].symbol = "tokens";
  ASSERT_EQ(padding().size(), 1u);
  EXPECT_EQ(padding()[0].dimension, "tokens");
  EXPECT_EQ(padding()[0].mask, "attention_mask");
  EXPECT_THAT(padding()[0].values, ElementsAre(Pair("attention_mask", 0), Pair("input_ids", 0)));
  EXPECT_THAT(padding()[0].sizes, ElementsAre(16, 32, 64, 128, 256, 512));
  settings_.max_length = 100;
  EXPECT_THAT(padding()[0].sizes, ElementsAre(16, 32, 64, 100));
  settings_.max_length = 8;
  EXPECT_THAT(padding()[0].sizes, ElementsAre(8));
  (*inputs_[0].type.shape)[0].symbol = "tokens";
  EXPECT_THAT(padding(), IsEmpty());  // what stands behind an input of the client's, nobody knows
}

TEST_F(TextPlanTest, VectorsOfTokensBecomeOne) {
  const Tensor mask = Tensor::Of<int64_t>(Shape{2, 3}, {1, 1, 0, 0, 0, 1});
  EXPECT_EQ(CountTokens(mask), 3);
  const Value vectors =
      Tensor::Of<float>(Shape{2, 4, 2}, {1.0f, 2.0f, 3.0f, 6.0f, 9.0f, 9.0f, 9.0f,
                                         9.0f,  // the last stands for padding of requests
                                         9.0f, 9.0f, 9.0f, 9.0f, 3.0f, 4.0f, 9.0f, 9.0f});
  const auto pooled = [&](const char* pooling, bool normalize) {
    settings_.pooling = pooling;
    settings_.normalize = normalize;
    const auto plan = Make();
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ((*plan)->client_outputs[0].name, "embedding");
    std::vector<Value> outputs = {vectors};
    EXPECT_TRUE(Pool(**plan, mask, outputs).ok());
    const auto elements = outputs[0].tensor().elements<float>();
    return std::vector<float>(elements.begin(), elements.end());
  };
  EXPECT_THAT(pooled("mean", false), ElementsAre(2, 4, 3, 4));
  EXPECT_THAT(pooled("cls", false), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(pooled("last", false), ElementsAre(3, 6, 3, 4));
  EXPECT_THAT(pooled("mean", true),
              ElementsAre(FloatNear(0.4472136f, 1e-6f), FloatNear(0.8944272f, 1e-6f),
                          FloatNear(0.6f, 1e-6f), FloatNear(0.8f, 1e-6f)));
}

TEST_F(TextPlanTest, ATextWithoutTokensHasZeros) {
  settings_.pooling = "mean";
  settings_.normalize = true;
  const auto plan = *Make();
  std::vector<Value> outputs = {Tensor::Of<float>(Shape{1, 1, 2}, {1.0f, 2.0f})};
  ASSERT_TRUE(Pool(*plan, Tensor::Of<int64_t>(Shape{1, 1}, {0}), outputs).ok());
  EXPECT_THAT(outputs[0].tensor().elements<float>(), ElementsAre(0, 0));
}

TEST_F(TextPlanTest, AnOutputOfAnotherShapeIsAFault) {
  settings_.pooling = "mean";
  const auto plan = *Make();
  const Tensor mask = Tensor::Of<int64_t>(Shape{1, 2}, {1, 1});
  for (const Shape& shape : {Shape{1, 2}, Shape{1, 1, 2}, Shape{2, 2, 2}}) {
    std::vector<Value> outputs = {*Tensor::Create(DataType::kFloat, shape)};
    EXPECT_EQ(Pool(*plan, mask, outputs).code(), StatusCode::kInternal) << shape.ToString();
  }
}

TEST_F(TextPlanTest, ADeeplyNestedFileIsRefused) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const std::string file = (folder_ / "tokenizer.json").string();
  const std::string config = (folder_ / "tokenizer_config.json").string();
  ASSERT_TRUE(WriteFile(config, "{\"model_max_length\": " + deep + "}").ok());
  EXPECT_EQ(Make().status().code(), StatusCode::kInvalidArgument);
  std::filesystem::remove(config);
  EXPECT_TRUE(Make().ok());
  ASSERT_TRUE(WriteFile(file, "{\"model\": " + deep + "}").ok());
  EXPECT_EQ(Make().status().code(), StatusCode::kInvalidArgument);
  std::string tokenizer = kTokenizer;
  tokenizer.insert(tokenizer.rfind('}'), ", \"other\": " + deep);
  ASSERT_TRUE(WriteFile(file, tokenizer).ok());
  EXPECT_EQ(Make().status().code(), StatusCode::kInvalidArgument);
}

TEST_F(TextPlanTest, SaysWhyAModelTakesNoTexts) {
  const auto says = [&](const char* why) {
    const auto plan = Make();
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(plan.status().message(), HasSubstr(why));
  };
  const auto inputs = inputs_;
  inputs_.pop_back();
  says("texts: the model has no input 'input_ids'; it takes: factor, attention_mask");
  inputs_ = inputs;
  inputs_[0].name = "text";
  says("the model has an input 'text' of its own");
  inputs_ = inputs;
  inputs_[1].type.element = DataType::kString;
  says("input 'attention_mask' of type string[?, ?] takes no tokens");
  inputs_ = inputs;
  settings_.pooling = "mean";
  outputs_[0].name = "embedding";
  says("the model has an output 'embedding' of its own");
  outputs_[0].type.shape->pop_back();
  says("'pooling' needs an output of a vector for each token, [batch, tokens, size]");
}

}  // namespace
}  // namespace onnxd
