{{/*
CEL that translates what pods ask for in the way of other projects. A policy that changes pods
and one that refuses them work with the same variables. The names of templates are those of
pkg/claimtemplate.
*/}}

{{/* The projects that are translated: kai,nos. */}}
{{- define "tranche.translate.projects" -}}
{{- $projects := list }}
{{- range $project, $settings := .Values.translate }}
{{- if $settings.enabled }}
{{- $projects = append $projects $project }}
{{- end }}
{{- end }}
{{- join "," $projects -}}
{{- end }}

{{/* Whether a quantity is a whole number: (dict "of" "limits.x" "least" 1 "most" 100). */}}
{{- define "tranche.cel.whole" -}}
[quantity(string({{ .of }}))].exists(q, q.isInteger() && q.asInteger() >= {{ .least }} && q.asInteger() <= {{ .most }})
{{- end }}

{{/* The number that a quantity is. */}}
{{- define "tranche.cel.number" -}}
quantity(string({{ . }})).asInteger()
{{- end }}

{{/* The value of an annotation as a message shows it, which must not have line breaks. */}}
{{- define "tranche.cel.shown" -}}
({{ . }}.size() > 40 ? {{ . }}.substring(0, 40) + "…" : {{ . }}).replace("\n", " ")
{{- end }}

{{/* Containers and init containers with their paths, and the names of claims for them. */}}
{{- define "tranche.translate.containers" -}}
- name: annotations
  expression: >-
    object.metadata.?annotations.orValue({})
- name: containers
  expression: >-
    object.spec.?initContainers.orValue([]).map(c, {"of": dyn(c), "list": dyn("initContainers"), "claim": dyn("-init"), "index": dyn(object.spec.initContainers.map(o, o.name).indexOf(c.name))}) +
    object.spec.?containers.orValue([]).map(c, {"of": dyn(c), "list": dyn("containers"), "claim": dyn(""), "index": dyn(object.spec.containers.map(o, o.name).indexOf(c.name))})
{{- $refused := .Files.Get "files/translate.yaml" | fromYaml }}
# What asks for a GPU in a way that nobody translates.
- name: untranslated
  expression: >-
    variables.containers.map(c, c.of.?resources.?limits.orValue({}).map(k, k).sort().map(k, [
    {{- range $refused.limits }}
    k.matches({{ .pattern | toJson }}) ? "container " + c.of.name + ": " + k + {{ print " " .text | toJson }} : "",
    {{- end }}
    ""].filter(m, m != "")).flatten()).flatten() +
    variables.annotations.map(k, k).sort().map(k, [
    {{- range $refused.annotations }}
    k.matches({{ .pattern | toJson }}){{ with .except }} && !k.matches({{ . | toJson }}){{ end }} ? "annotation " + k + {{ print " " .text | toJson }} : "",
    {{- end }}
    ""].filter(m, m != "")).flatten()
{{- end }}

{{/* The operations that let the default scheduler place a pod: (names of the other schedulers). */}}
{{- define "tranche.translate.scheduler" -}}
(object.spec.?schedulerName.orValue("") in {{ . | toJson }} ? [JSONPatch{op: "replace", path: "/spec/schedulerName", value: "default-scheduler"}] : [])
{{- end }}

{{/*
The operations that write claims. variables.asks are maps: "path" of the container, "claims"
whether it has claims, "claim" and "template". What a container asked for otherwise is removed:
its keys are in "remove".
*/}}
{{- define "tranche.translate.claims" -}}
(variables.asks.size() > 0 && !has(object.spec.resourceClaims) ? [JSONPatch{op: "add", path: "/spec/resourceClaims", value: []}] : []) +
variables.asks.map(a, JSONPatch{op: "add", path: "/spec/resourceClaims/-", value: {"name": string(a.claim), "resourceClaimTemplateName": string(a.template)}}) +
variables.asks.filter(a, !a.claims).map(a, JSONPatch{op: "add", path: string(a.path) + "/resources/claims", value: []}) +
variables.asks.map(a, JSONPatch{op: "add", path: string(a.path) + "/resources/claims/-", value: {"name": string(a.claim)}}) +
variables.asks.map(a, a.remove.map(k, JSONPatch{op: "remove", path: string(a.path) + "/resources/" + string(k)})).flatten()
{{- end }}

{{/*
KAI: https://github.com/kai-scheduler/KAI-Scheduler, pkg/common/constants and pkg/common/resources.
KAI 0.18 and Run:ai 3.0 write the container's name into the annotation.
*/}}
{{- define "tranche.translate.kai.variables" -}}
{{ include "tranche.translate.containers" . }}
- name: fraction
  expression: >-
    variables.annotations[?"gpu-fraction"].orValue("")
- name: memory
  expression: >-
    variables.annotations[?"gpu-memory"].orValue("")
- name: devices
  expression: >-
    variables.annotations[?"gpu-fraction-num-devices"].orValue("1")
# Annotations that name a container, with the name.
- name: naming
  expression: >-
    variables.annotations.map(k, k).filter(k, k == "gpu-fraction-container-name" || k.matches("^nvidia[.]com/container[.][^.]+[.](gpu-memory[.](request|limit)|gpu-compute[.]mode)$")).sort().map(k,
    {"key": k, "name": k == "gpu-fraction-container-name" ? variables.annotations[k] : k.split(".")[2]})
- name: prefix
  expression: >-
    "nvidia.com/container." + (variables.naming.size() > 0 ? variables.naming[0].name : "") + "."
# Amounts of memory with the MiB, which are 0 if the amount is not valid. Exponents are none: they are slow to compare.
- name: amounts
  expression: >-
    ["gpu-memory", variables.prefix + "gpu-memory.request", variables.prefix + "gpu-memory.limit", "gpu-memory.limit"].filter(k, k in variables.annotations).map(k,
    [variables.annotations[k] + (k == "gpu-memory" ? "Mi" : "")].map(v,
    v.size() <= 24 && v.matches("^[0-9]+([.][0-9]+)?([KMGT]i|[kMGT])?$") ? quantity(v).asApproximateFloat() : 0.0).map(bytes,
    {"key": dyn(k), "mib": dyn(bytes >= 1048576.0 && bytes <= 1099511627776.0 ? int((bytes + 1048575.0) / 1048576.0) : 0)})[0])
# What is requested, and the limits. A limit alone is requested, too.
- name: limits
  expression: >-
    variables.amounts.filter(a, string(a.key).endsWith(".limit"))
- name: requests
  expression: >-
    variables.amounts.filter(a, !string(a.key).endsWith(".limit"))
- name: modes
  expression: >-
    ["kai.scheduler/gpu-compute-sharing-mode", variables.prefix + "gpu-compute.mode"].filter(k, k in variables.annotations)
# Annotations that ask for MPS.
- name: mps
  expression: >-
    (variables.annotations[?"mps"].orValue("") == "true" ? ["mps"] : []) + variables.modes.filter(k, variables.annotations[k] == "sm-sharing")
- name: shares
  expression: >-
    "gpu-fraction" in variables.annotations || variables.amounts.size() > 0
# The container with that name, or the first that is no init container.
- name: chosen
  expression: >-
    variables.naming.size() > 0 ?
    variables.containers.filter(c, c.of.name == variables.naming[0].name) :
    variables.containers.filter(c, c.list == "containers" && c.index == 0)
- name: problems
  expression: >-
    [
    !variables.shares && "gpu-fraction-num-devices" in variables.annotations ?
    ["annotation gpu-fraction-num-devices needs gpu-fraction or gpu-memory"] : [],
    !variables.shares ? variables.mps.map(k, "annotation " + k + " needs gpu-fraction or gpu-memory") : [],
    "gpu-fraction" in variables.annotations ? variables.amounts.map(a,
    "annotations gpu-fraction and " + string(a.key) + " exclude each other: remove one") : [],
    "gpu-fraction" in variables.annotations && !variables.fraction.matches("^0?[.][0-9]{0,2}[1-9]0*$") ?
    ["annotation gpu-fraction is '" + {{ include "tranche.cel.shown" "variables.fraction" }} + "', and it must be above 0, below 1 and have at most three decimals, as in 0.5"] : [],
    "gpu-memory" in variables.annotations && !(variables.memory.matches("^0*[1-9][0-9]{0,6}$") && variables.memory.size() <= 12 && int(variables.memory) <= 1048576) ?
    ["annotation gpu-memory is '" + {{ include "tranche.cel.shown" "variables.memory" }} + "', and it must be a whole number of MiB from 1 to 1048576, as in 2000"] : [],
    variables.amounts.filter(a, a.key != "gpu-memory" && a.mib == 0).map(a,
    "annotation " + string(a.key) + " is '" + {{ include "tranche.cel.shown" "variables.annotations[string(a.key)]" }} + "', and it must be an amount from 1Mi to 1Ti, as in 8Gi or 7680Mi"),
    variables.amounts.all(a, a.mib > 0) ? [variables.requests, variables.limits].map(l, l.filter(a, a.mib != l[0].mib).map(a,
    "annotation " + string(a.key) + " is '" + variables.annotations[string(a.key)] + "', and " + string(l[0].key) + " '" + variables.annotations[string(l[0].key)] + "': write the same, or remove one")).flatten() : [],
    variables.amounts.all(a, a.mib > 0) && variables.requests.size() > 0 ? variables.limits.filter(a, a.mib < variables.requests[0].mib).map(a,
    "annotation " + string(a.key) + " is '" + variables.annotations[string(a.key)] + "', which is less than " + string(variables.requests[0].key) + " '" + variables.annotations[string(variables.requests[0].key)] + "': raise it, or remove one") : [],
    !(variables.devices.matches("^[0-9]{1,2}$") && int(variables.devices) >= 1 && int(variables.devices) <= 16) ?
    ["annotation gpu-fraction-num-devices is '" + {{ include "tranche.cel.shown" "variables.devices" }} + "', and it must be from 1 to 16"] : [],
    variables.shares && variables.devices != "1" ? variables.mps.map(k,
    "annotation " + k + " with more than one device: a process can use one MPS daemon only") : [],
    variables.shares ? variables.modes.filter(k, !(variables.annotations[k] in ["time-slicing", "sm-sharing"])).map(k,
    "annotation " + k + " is '" + {{ include "tranche.cel.shown" "variables.annotations[k]" }} + "', and it must be time-slicing or sm-sharing") : [],
    variables.mps.size() > 0 ? variables.modes.filter(k, variables.annotations[k] == "time-slicing").map(k,
    "annotation " + k + " is 'time-slicing', and " + variables.mps[0] + " asks for MPS: remove one") : [],
    variables.naming.exists(n, n.name != variables.naming[0].name) ?
    ["annotation " + variables.naming[0].key + " names container '" + {{ include "tranche.cel.shown" "variables.naming[0].name" }} + "', and other annotations name another: only one container of a pod can have a part of a GPU by annotations: remove those of the others, or write claims"] : [],
    variables.shares && variables.chosen.size() == 0 && variables.naming.size() > 0 ?
    ["annotation " + variables.naming[0].key + " names '" + {{ include "tranche.cel.shown" "variables.naming[0].name" }} + "', and the pod has no such container"] : [],
    variables.shares && variables.containers.exists(c, "nvidia.com/gpu" in c.of.?resources.?limits.orValue({})) ?
    ["the pod asks for a part of a GPU by an annotation and for nvidia.com/gpu by a limit: remove one"] : [],
    variables.untranslated
    ].flatten()
- name: template
  expression: >-
    "tranche-" + ("gpu-fraction" in variables.annotations ?
    "fraction-" + string(int((variables.fraction.substring(variables.fraction.indexOf(".") + 1) + "00").substring(0, 3))) :
    "memory-" + string(int(variables.amounts[0].mib)) + "mi" +
    variables.limits.filter(a, a.mib > variables.amounts[0].mib).map(a, "-limit-" + string(int(a.mib)) + "mi").join(" ").split(" ")[0]) +
    (int(variables.devices) > 1 ? "-x" + string(int(variables.devices)) : "") + (variables.mps.size() > 0 ? "-mps" : "")
- name: foreignClaim
  expression: >-
    variables.shares && variables.problems.size() == 0 && object.spec.?resourceClaims.orValue([]).exists(c,
    c.name == "tranche" && c.?resourceClaimTemplateName.orValue("") != variables.template)
# Nothing is left to do for a copy of a pod that was translated.
- name: asks
  expression: >-
    variables.shares && variables.problems.size() == 0 && !object.spec.?resourceClaims.orValue([]).exists(c, c.name == "tranche") ?
    variables.chosen.map(c, {"path": dyn("/spec/" + c.list + "/" + string(c.index)), "claims": dyn(c.of.?resources.?claims.hasValue()),
    "claim": dyn("tranche"), "template": dyn(variables.template), "remove": dyn([])}) : []
{{- end }}

{{- define "tranche.translate.kai.validations" -}}
- expression: variables.problems.size() == 0
  reason: Invalid
  messageExpression: variables.problems.join("; ")
- expression: "!variables.foreignClaim"
  reason: Invalid
  message: >-
    the pod has a claim of its own with the name tranche, which the claim for its annotations gets: give it another name
- expression: >-
    variables.problems.size() > 0 || !variables.shares || (
    object.spec.?resourceClaims.orValue([]).exists(c, c.name == "tranche") &&
    variables.chosen.all(c, c.of.?resources.?claims.orValue([]).exists(k, k.name == "tranche")))
  reason: Invalid
  message: >-
    the annotations were not translated, and the pod would run without a GPU: no container has the claim with the name tranche
{{- end }}

{{/*
HAMi: https://github.com/Project-HAMi/HAMi, pkg/device/{nvidia,amd}/device.go. A container that
asks for whole GPUs only, without a selection by type or UUID, stays as it is.
*/}}
{{- define "tranche.translate.hami.variables" -}}
{{ include "tranche.translate.containers" . }}
{{- range $vendor := list "nvidia" "amd" }}
{{- $uuid := eq $vendor "nvidia" | ternary "gpuuuid" "gpu-uuid" }}
# vgpu is an older name of the number of GPUs.
- name: {{ $vendor }}Limits
  expression: >-
    ["gpu", {{ if eq $vendor "nvidia" }}"vgpu", {{ end }}"gpumem", "gpumem-percentage", "gpucores"].map(n, "{{ $vendor }}.com/" + n)
# Terms of the template's name: type-a100.
- name: {{ $vendor }}Terms
  expression: >-
    [["type-", "{{ $vendor }}.com/use-gputype"], ["nottype-", "{{ $vendor }}.com/nouse-gputype"],
    ["uuid-", "{{ $vendor }}.com/use-{{ $uuid }}"], ["notuuid-", "{{ $vendor }}.com/nouse-{{ $uuid }}"]].map(p,
    [variables.annotations[?p[1]].orValue("")].map(v, v.size() > 200 ? "(too long)" : v)[0]
    .split(",").map(t, t.trim().lowerAscii().replace(" ", "-").replace("_", "-")).filter(t, t != "").map(t, p[0] + t)).flatten()
- name: {{ $vendor }}
  expression: >-
    variables.containers.filter(c, c.of.?resources.?limits.orValue({}).exists(k, k in variables.{{ $vendor }}Limits &&
    (k != "{{ $vendor }}.com/gpu" || variables.{{ $vendor }}Terms.size() > 0)))
{{- end }}
- name: problems
  expression: >-
    [
    [
    "nvidia.com/vgpu-mode" in variables.annotations && variables.annotations["nvidia.com/vgpu-mode"] != "hami-core" && variables.nvidia.size() > 0 ?
    "annotation nvidia.com/vgpu-mode has no counterpart: ask for a MIG partition by a claim, or have the sharing strategy set by a PartitionProfile" : "",
    variables.annotations[?"nvidia.com/numa-bind"].orValue("").lowerAscii() in ["true", "1", "t"] && variables.nvidia.size() > 0 ?
    "annotation nvidia.com/numa-bind has no counterpart: write a claim with matchAttribute resource.kubernetes.io/numaNode" : "",
    variables.containers.exists(c, "nvidia.com/priority" in c.of.?resources.?limits.orValue({})) ?
    "nvidia.com/priority has no counterpart: remove it" : ""
    ],
    {{- range $vendor := list "nvidia" "amd" }}
    variables.{{ $vendor }}.size() > 0 && (variables.{{ $vendor }}Terms.join(".").size() > 180 || variables.{{ $vendor }}Terms.exists(t, t.endsWith("-(too-long)"))) ?
    ["the annotations of {{ $vendor }}.com select GPUs by more than 180 characters: write a claim, as kubectl tranche convert does"] : [],
    variables.{{ $vendor }}.size() == 0 ? [] : variables.{{ $vendor }}Terms.filter(t, !t.endsWith("-(too-long)") && !t.matches("^[a-z]+-[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")).map(t,
    "the annotations of {{ $vendor }}.com select a type or UUID by '" + {{ include "tranche.cel.shown" "t.substring(t.indexOf(\"-\") + 1)" }} + "', and it may have letters, digits, spaces, underscores and dashes only, at most 63"),
    variables.{{ $vendor }}.map(c, [c.of.resources.limits].map(l, [
    "{{ $vendor }}.com/gpu" in l && !{{ include "tranche.cel.whole" (dict "of" (printf "l[\"%s.com/gpu\"]" $vendor) "least" 1 "most" 16) }} ?
    "{{ $vendor }}.com/gpu is " + string(l["{{ $vendor }}.com/gpu"]) + ", and it must be from 1 to 16" : "",
    "{{ $vendor }}.com/gpumem" in l && !{{ include "tranche.cel.whole" (dict "of" (printf "l[\"%s.com/gpumem\"]" $vendor) "least" 1 "most" 1048576) }} ?
    "{{ $vendor }}.com/gpumem is " + string(l["{{ $vendor }}.com/gpumem"]) + ", and it must be a whole number of MiB from 1 to 1048576" : "",
    {{- if eq $vendor "nvidia" }}
    "nvidia.com/vgpu" in l && !{{ include "tranche.cel.whole" (dict "of" "l[\"nvidia.com/vgpu\"]" "least" 1 "most" 16) }} ?
    "nvidia.com/vgpu is " + string(l["nvidia.com/vgpu"]) + ", and it must be from 1 to 16" : "",
    "nvidia.com/vgpu" in l && "nvidia.com/gpu" in l ?
    "nvidia.com/gpu and nvidia.com/vgpu exclude each other: remove one" : "",
    "nvidia.com/gpumem-percentage" in l && !{{ include "tranche.cel.whole" (dict "of" "l[\"nvidia.com/gpumem-percentage\"]" "least" 1 "most" 100) }} ?
    "nvidia.com/gpumem-percentage is " + string(l["nvidia.com/gpumem-percentage"]) + ", and it must be a whole number from 1 to 100" : "",
    "nvidia.com/gpumem-percentage" in l && "nvidia.com/gpumem" in l ?
    "nvidia.com/gpumem and nvidia.com/gpumem-percentage exclude each other: remove one" : "",
    "nvidia.com/gpucores" in l && !{{ include "tranche.cel.whole" (dict "of" "l[\"nvidia.com/gpucores\"]" "least" 0 "most" 100) }} ?
    "nvidia.com/gpucores is " + string(l["nvidia.com/gpucores"]) + ", and it must be a whole number from 0 to 100" : "",
    "nvidia.com/gpucores" in l && {{ include "tranche.cel.whole" (dict "of" "l[\"nvidia.com/gpucores\"]" "least" 100 "most" 100) }} &&
    ("nvidia.com/gpumem" in l || ("nvidia.com/gpumem-percentage" in l && !{{ include "tranche.cel.whole" (dict "of" "l[\"nvidia.com/gpumem-percentage\"]" "least" 100 "most" 100) }})) ?
    "nvidia.com/gpucores is 100, which reserves a whole GPU in HAMi: remove it, or the amount of memory" : ""
    {{- else }}
    "amd.com/gpumem-percentage" in l ? "amd.com/gpumem-percentage does not exist: use amd.com/gpumem" : "",
    "amd.com/gpucores" in l && !{{ include "tranche.cel.whole" (dict "of" "l[\"amd.com/gpucores\"]" "least" 100 "most" 100) }} ?
    "amd.com/gpucores is " + string(l["amd.com/gpucores"]) + ", and nothing limits the compute of a share of an AMD GPU: remove it, or ask for a partition by a claim" : ""
    {{- end }}
    ].filter(m, m != "").map(m, "container " + c.of.name + ": " + m))[0]).flatten(),
    {{- end }}
    object.spec.?resourceClaims.orValue([]).filter(k, (variables.nvidia + variables.amd).exists(c, k.name in ["tranche" + c.claim + "-" + string(c.index), "tranche-amd" + c.claim + "-" + string(c.index)])).map(k,
    "the pod has a claim of its own with the name " + k.name + ", which the claim for its limits gets: give it another name"),
    variables.untranslated
    ].flatten().filter(m, m != "")
{{- range $vendor := list "nvidia" "amd" }}
- name: {{ $vendor }}Asks
  expression: >-
    variables.{{ $vendor }}.map(c, [c.of.resources.limits].map(l, {
    "path": dyn("/spec/" + c.list + "/" + string(c.index)), "claims": dyn(c.of.?resources.?claims.hasValue()),
    "claim": dyn("tranche{{ eq $vendor "amd" | ternary "-amd" "" }}" + c.claim + "-" + string(c.index)),
    "template": dyn("tranche-{{ eq $vendor "amd" | ternary "amd-" "" }}" +
    ("{{ $vendor }}.com/gpumem" in l ? "memory-" + string({{ include "tranche.cel.number" (printf "l[\"%s.com/gpumem\"]" $vendor) }}) + "mi" :
    {{- if eq $vendor "nvidia" }}
    [l[?"nvidia.com/gpumem-percentage"].optMap(p, {{ include "tranche.cel.number" "p" }}).orValue(100)].map(p,
    p == 100 && !("nvidia.com/gpucores" in l && {{ include "tranche.cel.whole" (dict "of" "l[\"nvidia.com/gpucores\"]" "least" 1 "most" 99) }}) ? "gpu" : "fraction-" + string(p * 10))[0]
    {{- else }}
    "gpu"
    {{- end }}) +
    {{- if eq $vendor "nvidia" }}
    [l[?"nvidia.com/gpucores"].optMap(n, {{ include "tranche.cel.number" "n" }}).orValue(0)].map(n, n > 0 && n < 100 ? "-compute-" + string(n) : "")[0] +
    {{- end }}
    [l[?"{{ $vendor }}.com/gpu"]{{ if eq $vendor "nvidia" }}.or(l[?"nvidia.com/vgpu"]){{ end }}.optMap(n, {{ include "tranche.cel.number" "n" }}).orValue(1)].map(n, n > 1 ? "-x" + string(n) : "")[0] +
    variables.{{ $vendor }}Terms.map(t, "." + t).join("")),
    "remove": dyn(variables.{{ $vendor }}Limits.map(n, ["limits", "requests"].map(s,
    (s == "limits" ? l : c.of.resources.?requests.orValue({})).exists(k, k == n) ? s + "/" + n.replace("/", "~1") : "")).flatten().filter(k, k != ""))
    })[0])
{{- end }}
- name: asks
  expression: >-
    variables.problems.size() == 0 ? variables.nvidiaAsks + variables.amdAsks : []
{{- end }}

{{- define "tranche.translate.hami.validations" -}}
- expression: variables.problems.size() == 0
  reason: Invalid
  messageExpression: variables.problems.join("; ")
- expression: variables.asks.size() == 0
  reason: Invalid
  messageExpression: >-
    "the limits of " + variables.asks.map(a, string(a.path)).join(", ") + " were not translated, and nothing serves them"
{{- end }}

{{/* nos: https://github.com/nebuly-ai/nos, pkg/gpu/slicing. It counts 1000 MiB as a GB. */}}
{{- define "tranche.translate.nos.variables" -}}
{{ include "tranche.translate.containers" . }}
- name: slices
  expression: >-
    variables.containers.map(c, {"of": dyn(c), "keys": dyn(c.of.?resources.?limits.orValue({}).filter(k, k.matches("^nvidia[.]com/gpu-[0-9]+gb$")).sort())}).filter(c, c.keys.size() > 0)
- name: problems
  expression: >-
    [
    variables.slices.map(c, [
    c.keys.size() > 1 ? "more than one slice: ask for one that is large enough" : "",
    c.keys.exists(k, !k.matches("^nvidia[.]com/gpu-[1-9][0-9]{0,2}gb$")) ? c.keys.join(", ") + ": the number of GB must be from 1 to 999" : "",
    c.keys.exists(k, !{{ include "tranche.cel.whole" (dict "of" "c.of.of.resources.limits[k]" "least" 1 "most" 1) }}) ?
    c.keys.join(", ") + " must be 1: ask for one slice that is large enough" : ""
    ].filter(m, m != "").map(m, "container " + c.of.of.name + ": " + m)).flatten(),
    variables.containers.filter(c, "nos.nebuly.com/gpu-memory" in c.of.?resources.?limits.orValue({})).map(c,
    "container " + c.of.name + ": nos.nebuly.com/gpu-memory is for quotas of nos: ask for nvidia.com/gpu-10gb"),
    object.spec.?resourceClaims.orValue([]).filter(k, variables.slices.exists(c, k.name == "tranche" + c.of.claim + "-" + string(c.of.index))).map(k,
    "the pod has a claim of its own with the name " + k.name + ", which the claim for its limits gets: give it another name"),
    variables.untranslated
    ].flatten()
- name: asks
  expression: >-
    variables.problems.size() > 0 ? [] : variables.slices.map(c, {
    "path": dyn("/spec/" + c.of.list + "/" + string(c.of.index)), "claims": dyn(c.of.of.?resources.?claims.hasValue()),
    "claim": dyn("tranche" + c.of.claim + "-" + string(c.of.index)),
    "template": dyn("tranche-memory-" + c.keys[0].substring(15, c.keys[0].size() - 2) + "000mi"),
    "remove": dyn(["limits"].map(s, s + "/" + c.keys[0].replace("/", "~1")) +
    (c.keys[0] in c.of.of.resources.?requests.orValue({}) ? ["requests/" + c.keys[0].replace("/", "~1")] : []))
    })
{{- end }}

{{- define "tranche.translate.nos.validations" -}}
{{ include "tranche.translate.hami.validations" . }}
{{- end }}
