// onnxd health, predict, models: questions to a running server.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "server/config/option_key.h"
#include "tools/command.h"
#include "tools/grpc_predict.h"

namespace onnxd {
namespace {

constexpr uint64_t kMostInput = uint64_t{1} << 30;

// Letters, digits and "-._~" stay; RFC 3986, section 2.3.
std::string Quoted(const std::string& segment) {
  std::string out;
  for (const char c : segment) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || std::string_view("-._~").find(c) != std::string_view::npos) {
      out += c;
    } else {
      char escaped[4];
      std::snprintf(escaped, sizeof(escaped), "%%%02X", byte);
      out += escaped;
    }
  }
  return out;
}

Result<HttpReply> AskFor200(const ServerAddress& server, const std::string& method,
                            const std::string& path, const std::string& body = "") {
  ONNXD_ASSIGN_OR_RETURN(HttpReply reply, Ask(server, method, path, body));
  if (reply.status != 200) return FailureOf(reply);
  return reply;
}

// Of a file, or of standard input.
Result<std::string> ReadInput(const std::string& path) {
  if (path != "-") return ReadFile(path, kMostInput);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

// A body for /predict of what people have: that body, or the input alone.
Result<std::string> PredictBody(const std::string& text) {
  const auto document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded()) return InvalidArgument("the input is no JSON");
  const bool whole =
      document.is_object() && (document.contains("input") || document.contains("inputs"));
  if (whole) return text;
  return StrCat(document.is_object() ? "{\"inputs\":" : "{\"input\":", text, "}");
}

int PrintAnswer(const Result<HttpReply>& reply) {
  if (!reply.ok()) return Fail(reply.status());
  std::printf("%s\n", reply->body.c_str());
  return kExitOk;
}

int ChangeRollout(const ClientFlags& flags, const nlohmann::ordered_json& change) {
  return PrintAnswer(AskFor200(flags.server, "POST",
                               StrCat("/v2/repository/models/", Quoted(flags.model), "/rollout"),
                               change.dump()));
}

int AskOfVersion(const ClientFlags& flags, const char* verb) {
  nlohmann::json body = nlohmann::json::object();
  if (!flags.version.empty()) body["version"] = flags.version;
  return PrintAnswer(AskFor200(flags.server, "POST",
                               StrCat("/v2/repository/models/", Quoted(flags.model), "/", verb),
                               body.dump()));
}

}  // namespace

int Health(const ClientFlags& flags) {
  const auto reply = Ask(flags.server, "GET", flags.ready ? "/health/ready" : "/health/live");
  if (!reply.ok()) return Fail(reply.status());
  std::printf("%s\n", reply->body.c_str());
  return reply->status == 200 ? kExitOk : kExitFailure;
}

int PredictOnServer(const ClientFlags& flags) {
  const auto text = ReadInput(flags.input);
  if (!text.ok()) return Fail(text.status());
  const auto body = PredictBody(*text);
  if (!body.ok()) return Fail(body.status());
  return PrintAnswer(
      AskFor200(flags.server, "POST", StrCat("/predict/", Quoted(flags.model)), *body));
}

int PredictOverGrpc(const ClientFlags& flags) {
  const auto text = ReadInput(flags.input);
  if (!text.ok()) return Fail(text.status());
  const auto answer = PredictWithGrpc(flags.server, flags.model, *text);
  if (!answer.ok()) return Fail(answer.status());
  std::printf("%s\n", answer->c_str());
  return kExitOk;
}

int ListModels(const ClientFlags& flags) {
  const auto reply = AskFor200(flags.server, "POST", "/v2/repository/index");
  if (!reply.ok()) return Fail(reply.status());
  const auto index = nlohmann::json::parse(reply->body, nullptr, false);
  if (!index.is_array()) return Fail(Internal("the server's answer is no list"));
  for (const auto& model : index) {
    const std::string reason = model.value("reason", "");
    std::printf("%s %s %s%s\n", model.value("name", "").c_str(), model.value("version", "").c_str(),
                model.value("state", "").c_str(),
                reason.empty() ? "" : StrCat(": ", reason).c_str());
  }
  return kExitOk;
}

int ControlModel(const ClientFlags& flags) {
  const auto reply = AskFor200(
      flags.server, "POST",
      StrCat("/v2/repository/models/", Quoted(flags.model), flags.load ? "/load" : "/unload"));
  return reply.ok() ? kExitOk : Fail(reply.status());
}

int ShowRollout(const ClientFlags& flags) {
  return PrintAnswer(
      AskFor200(flags.server, "GET", StrCat("/v2/models/", Quoted(flags.model), "/rollout")));
}

int LabelModel(const ClientFlags& flags) {
  nlohmann::ordered_json version;
  if (!flags.version.empty()) version = flags.version;
  return ChangeRollout(flags, {{"labels", {{flags.label, version}}}});
}

int SplitModel(const ClientFlags& flags) {
  nlohmann::ordered_json split;
  for (const std::string& share : flags.shares) {
    const size_t equals = share.find('=');
    const auto weight = equals == std::string::npos
                            ? InvalidArgument("it has no '='")
                            : ParseNumber(share.substr(equals + 1), 0, INT64_MAX);
    if (!weight.ok()) return Fail(InvalidArgument(StrCat("'", share, "' is not VERSION=WEIGHT")));
    split[share.substr(0, equals)] = *weight;
  }
  return ChangeRollout(flags, {{"split", split}});
}

int RollBackModel(const ClientFlags& flags) { return AskOfVersion(flags, "rollback"); }

int ReleaseModel(const ClientFlags& flags) { return AskOfVersion(flags, "release"); }

}  // namespace onnxd
