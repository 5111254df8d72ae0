#include "server/http/rollout_api.h"

#include <map>

#include "runtime/base/str_cat.h"
#include "server/http/json_document.h"
#include "server/http/rest_api.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

using Share = RolloutSettings::Share;

// Text, a whole number, or empty for null.
Result<std::string> TextOrNull(JsonValue json) {
  std::string_view text;
  if (json.get_string().get(text) == simdjson::SUCCESS) return std::string(text);
  int64_t number;
  if (json.get_int64().get(number) == simdjson::SUCCESS) return StrCat(number);
  bool null = false;
  ONNXD_RETURN_IF_ERROR(JsonStatus(json.is_null().get(null)));
  if (null) return std::string();
  return InvalidArgument("must be the number of a version, or null");
}

Status ReadLabel(std::string_view label, JsonValue json, RolloutChange& change) {
  const std::string name(label);
  ONNXD_ASSIGN_OR_RETURN(const std::string version, TextOrNull(json));
  if (version.empty()) {
    change.labels[name] = "";
    return Status::Ok();
  }
  RolloutSettings read;
  ONNXD_RETURN_IF_ERROR(AddLabel(name, version, read));
  change.labels.merge(read.labels);
  return Status::Ok();
}

Status ReadShare(std::string_view version, JsonValue json, RolloutSettings& read) {
  int64_t weight;
  if (json.get_int64().get(weight) != simdjson::SUCCESS) {
    return InvalidArgument("must be a whole number");
  }
  return AddShare(std::string(version), StrCat(weight), read);
}

std::string Named(std::string_view member, std::string_view key) {
  return StrCat("'", member, ".", key.substr(0, 64), "'");
}

Status ReadMember(std::string_view member, JsonValue json, RolloutChange& change) {
  JsonObject object;
  const bool is_object = json.get_object().get(object) == simdjson::SUCCESS;
  if (member == "labels" && is_object) {
    return ForEachField(object, [&](std::string_view label, JsonValue version) {
      return ReadLabel(label, version, change).WithContext(Named(member, label));
    });
  }
  if (member == "split" && is_object) {
    RolloutSettings read;
    ONNXD_RETURN_IF_ERROR(ForEachField(object, [&](std::string_view version, JsonValue weight) {
      return ReadShare(version, weight, read).WithContext(Named(member, version));
    }));
    change.split = std::move(read.split);
    return Status::Ok();
  }
  bool null = false;
  if (member == "split" && json.is_null().get(null) == simdjson::SUCCESS && null) {
    change.split.emplace();
    return Status::Ok();
  }
  return InvalidArgument(
      "the body may have \"labels\": an object, and \"split\": an object or null");
}

void AppendLabels(std::string& out, const std::map<std::string, std::string>& labels) {
  out += "\"labels\":{";
  const char* separator = "";
  for (const auto& [label, version] : labels) {
    out += StrCat(separator, "\"", label, "\":\"", version, "\"");
    separator = ",";
  }
  out += "}";
}

void AppendSplit(std::string& out, const std::vector<Share>& split) {
  out += "\"split\":{";
  const char* separator = "";
  for (const Share& share : split) {
    out += StrCat(separator, "\"", share.version, "\":", share.weight);
    separator = ",";
  }
  out += "}";
}

void AppendRolledBack(std::string& out, const std::vector<QuarantineEntry>& entries) {
  out += "\"rolled_back\":[";
  const char* separator = "";
  for (const QuarantineEntry& entry : entries) {
    out += StrCat(separator, "{\"version\":\"", entry.version, "\",\"contents\":\"", entry.contents,
                  "\",\"reason\":");
    AppendJsonString(out, entry.reason);
    out += "}";
    separator = ",";
  }
  out += "]";
}

void AppendShadow(std::string& out, const ShadowSettings& shadow,
                  const std::vector<ShadowTraffic::Example>& differences) {
  out += StrCat("\"shadow\":{\"version\":\"", shadow.version, "\",\"percent\":", shadow.percent,
                ",\"tolerance\":", shadow.tolerance, ",\"differences\":[");
  const char* separator = "";
  for (const auto& example : differences) {
    out += StrCat(separator, "{\"request_id\":");
    AppendJsonString(out, example.request_id);
    out += StrCat(",\"version\":\"", example.version, "\",\"shadow_version\":\"",
                  example.shadow_version, "\",\"difference\":");
    AppendJsonString(out, example.difference);
    out += "}";
    separator = ",";
  }
  out += "]}";
}

HttpResponse Answer(const InferenceService& service, const std::string& model) {
  const auto rollout = service.RolloutOf(model);
  if (!rollout.ok()) return ErrorResponse(rollout.status());
  HttpResponse response;
  std::string& out = response.body;
  out = "{\"model\":";
  AppendJsonString(out, model);
  out += ",";
  AppendLabels(out, rollout->now.labels);
  out += ",";
  AppendSplit(out, rollout->now.split);
  out += ",\"changed_by_request\":{";
  AppendLabels(out, rollout->changed.labels);
  out += ",";
  AppendSplit(out, rollout->changed.split);
  out += "},";
  AppendRolledBack(out, rollout->rolled_back);
  out += ",";
  AppendShadow(out, rollout->now.shadow, rollout->differences);
  out += StrCat(",\"persistent\":", rollout->persistent, "}");
  return response;
}

Status ReadVersion(std::string_view member, JsonValue json, std::string& version) {
  if (member != "version") return InvalidArgument("the body may have \"version\"");
  auto text = TextOrNull(json);
  if (text.ok()) version = *std::move(text);
  return text.status().WithContext("'version'");
}

}  // namespace

std::optional<RolloutRoute> RolloutRouteOf(const std::vector<std::string>& path) {
  using Verb = RolloutRoute::Verb;
  static const std::map<std::string_view, Verb> kVerbs = {
      {"rollout", Verb::kChange}, {"rollback", Verb::kRollBack}, {"release", Verb::kRelease}};
  if (path.size() == 4 && path[1] == "models" && path[3] == "rollout") {
    return RolloutRoute{Verb::kShow, path[2]};
  }
  if (path.size() != 5 || path[1] != "repository" || path[2] != "models") return std::nullopt;
  const auto verb = kVerbs.find(path[4]);
  if (verb == kVerbs.end()) return std::nullopt;
  return RolloutRoute{verb->second, path[3]};
}

void HandleRollout(InferenceService& service, const RolloutRoute& route, const HttpRequest& request,
                   HttpRespond respond) {
  using Verb = RolloutRoute::Verb;
  if (route.verb == Verb::kShow) return respond(Answer(service, route.model));
  RolloutChange change;
  std::string version;
  Status read;
  if (route.verb == Verb::kChange) {
    read = ReadJsonObject(request.body, [&](std::string_view member, JsonValue json) {
      return ReadMember(member, json, change);
    });
  } else if (!request.body.bytes.empty()) {
    read = ReadJsonObject(request.body, [&](std::string_view member, JsonValue json) {
      return ReadVersion(member, json, version);
    });
  }
  if (read.ok() && route.verb == Verb::kRelease && version.empty()) {
    read = InvalidArgument("the body must have \"version\"");
  }
  if (!read.ok()) return respond(ErrorResponse(read));
  auto done = [&service, model = route.model, respond = std::move(respond)](const Status& status) {
    respond(status.ok() ? Answer(service, model) : ErrorResponse(status));
  };
  if (route.verb == Verb::kChange) {
    service.ChangeRollout(route.model, std::move(change), std::move(done));
  } else if (route.verb == Verb::kRollBack) {
    service.RollBack(route.model, version, std::move(done));
  } else {
    service.Release(route.model, version, std::move(done));
  }
}

}  // namespace onnxd
