{{/* The driver's name. Claims, slices and CDI files carry it: it is not a value. */}}
{{- define "tranche.driver" -}}
gpu.tranche.dev
{{- end }}

{{/*
The first part of the names of all objects. It does not follow the release's
name: there is one driver in a cluster, and people look for these names.
*/}}
{{- define "tranche.fullname" -}}
{{- .Values.fullnameOverride | default "tranche" -}}
{{- end }}

{{- define "tranche.kubeletPlugin.name" -}}
{{- include "tranche.fullname" . }}-kubelet-plugin
{{- end }}

{{/*
The identity of the kubelet plugin. DaemonSet, role binding and admission policy
all take it from here: a policy that guards another account guards nothing.
*/}}
{{- define "tranche.kubeletPlugin.serviceAccountName" -}}
{{- .Values.kubeletPlugin.serviceAccount.name | default (include "tranche.kubeletPlugin.name" .) -}}
{{- end }}

{{- define "tranche.kubeletPlugin.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "tranche.kubeletPlugin.serviceAccountName" . }}
{{- end }}

{{- define "tranche.controller.name" -}}
{{- include "tranche.fullname" . }}-controller
{{- end }}

{{- define "tranche.controller.serviceAccountName" -}}
{{- .Values.controller.serviceAccount.name | default (include "tranche.controller.name" .) -}}
{{- end }}

{{- define "tranche.controller.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "tranche.controller.serviceAccountName" . }}
{{- end }}

{{- define "tranche.controller.selectorLabels" -}}
{{ include "tranche.selectorLabels" . }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "tranche.web.name" -}}
{{- include "tranche.fullname" . }}-web
{{- end }}

{{- define "tranche.web.selectorLabels" -}}
{{ include "tranche.selectorLabels" . }}
app.kubernetes.io/component: web
{{- end }}

{{/* The key of the controller's taints, and what it sets labels to that pause monitoring pods. */}}
{{- define "tranche.taint" -}}
tranche.dev/switching
{{- end }}

{{- define "tranche.paused" -}}
paused-for-tranche
{{- end }}

{{/* What Helm creates only to uninstall. */}}
{{- define "tranche.uninstall.name" -}}
{{- include "tranche.fullname" . }}-uninstall
{{- end }}

{{/*
Annotations of what Helm creates only to uninstall: (weight). It is gone when
Helm has ended, however that was.
*/}}
{{- define "tranche.uninstall.hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* Where pods reach the API server, if not by its Service. */}}
{{- define "tranche.apiServer.env" -}}
{{- with .Values.apiServer.host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ . | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ $.Values.apiServer.port | quote }}
{{- end }}
{{- end }}

{{- define "tranche.inventories.name" -}}
{{- include "tranche.fullname" . }}-inventories
{{- end }}

{{- define "tranche.profiles.name" -}}
{{- include "tranche.fullname" . }}-profiles
{{- end }}

{{- define "tranche.profileCatalog.name" -}}
{{- include "tranche.fullname" . }}-profile-catalog
{{- end }}

{{- define "tranche.devicePluginConfigs.name" -}}
{{- include "tranche.fullname" . }}-device-plugin-configs
{{- end }}

{{- define "tranche.image" -}}
{{- include "tranche.imageReference" (list . .Values.image .Chart.AppVersion) -}}
{{- end }}

{{/* The image of the simulated drivers: that of the release, beside the product's. */}}
{{- define "tranche.simulate.image" -}}
{{- $image := .Values.simulate.image }}
{{- $repository := $image.repository | default (printf "%s-simulated-driver" .Values.image.repository) }}
{{- $tag := .Values.image.tag | default .Chart.AppVersion }}
{{- include "tranche.imageReference" (list . (dict "repository" $repository "tag" $image.tag "digest" $image.digest) $tag) -}}
{{- end }}

{{/*
An image: (list root values tag), where the values have repository, tag and digest. What stands
before the first slash is a registry if it has a dot or a colon, as in every reference to an
image.
*/}}
{{- define "tranche.imageReference" -}}
{{- $image := index . 1 }}
{{- $repository := $image.repository }}
{{- with (index . 0).Values.global.imageRegistry }}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") }}
{{- end }}
{{- with $image.digest }}
{{- printf "%s@%s" $repository . -}}
{{- else }}
{{- printf "%s:%s" $repository ($image.tag | default (index . 2)) -}}
{{- end }}
{{- end }}

{{/* Whether the cluster is OpenShift. */}}
{{- define "tranche.openshift" -}}
{{- $enabled := toString .Values.openshift.enabled }}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) }}true{{ end -}}
{{- end }}

{{/*
Security context of the pods that need no privileges. OpenShift gives each namespace a
range of ids, and refuses others.
*/}}
{{- define "tranche.podSecurityContext" -}}
{{- $context := .Values.controller.podSecurityContext }}
{{- if include "tranche.openshift" . }}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" }}
{{- end }}
{{- with $context -}}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Annotation of pods that names the SecurityContextConstraints to check them against. */}}
{{- define "tranche.requiredSCC" -}}
openshift.io/required-scc: {{ . }}
{{- end }}

{{- define "tranche.imagePullSecrets" -}}
{{- with concat .Values.imagePullSecrets .Values.global.imagePullSecrets | uniq -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tranche.labels" -}}
{{ include "tranche.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: tranche
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tranche.selectorLabels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tranche.kubeletPlugin.selectorLabels" -}}
{{ include "tranche.selectorLabels" . }}
app.kubernetes.io/component: kubelet-plugin
{{- end }}

{{/* Whether any node is to get invented hardware. */}}
{{- define "tranche.simulates" -}}
{{- if or .Values.simulate.inventory .Values.simulate.nodes }}true{{ end -}}
{{- end }}

{{/* node-a=h100x8,node-b=l4x4 */}}
{{- define "tranche.simulate.nodes" -}}
{{- $pairs := list }}
{{- range $node, $inventory := .Values.simulate.nodes }}
{{- $pairs = append $pairs (printf "%s=%s" $node $inventory) }}
{{- end }}
{{- join "," $pairs -}}
{{- end }}

{{/* A MIG profile as part of an object's name: 1g.24gb+me is 1g-24gb-plus-me, 1g.24gb-me is 1g-24gb-no-me. */}}
{{- define "tranche.mig.name" -}}
{{- . | replace "-me" "-no-me" | replace "+" "-plus-" | replace "." "-" -}}
{{- end }}

{{/*
CEL that selects by one attribute: (dict "attribute" "type" "value" "mig").
A selector that reads an attribute which a device lacks fails the scheduling of
the pod, hence orValue.
*/}}
{{- define "tranche.cel.equals" -}}
device.attributes["{{ include "tranche.driver" . }}"].?{{ .attribute }}.orValue("") == "{{ .value }}"
{{- end }}

{{/* CEL that tells whether an expression is the name of one of our classes of shares. */}}
{{- define "tranche.cel.isShareClass" -}}
{{ . }}.matches("^gpu-(partition-)?(memory|fraction)-share(-nvidia|-amd)?[.]tranche[.]dev$")
{{- end }}

{{/*
CEL that tells whether a pod asks for GPUs. What its claims are for is in other objects, which a
policy does not see: any claim counts.
*/}}
{{- define "tranche.cel.asksForGPUs" -}}
object.spec.?resourceClaims.orValue([]).size() > 0 ||
(object.spec.containers.map(c, c.?resources.?limits.orValue({})) +
object.spec.?initContainers.orValue([]).map(c, c.?resources.?limits.orValue({})))
.exists(l, l.exists(k, k.matches("^((nvidia|amd)[.]com/(gpu|mig-)|deviceclass[.]resource[.]kubernetes[.]io/.*tranche[.]dev$)")))
{{- end }}

{{/* The folder on the host of what does not outlive a boot. */}}
{{- define "tranche.runDir" -}}
/run/tranche
{{- end }}

{{/* The projects whose node labels the controller follows: their names in its flag, and the
ConfigMaps that it reads. */}}
{{- define "tranche.formats" -}}
{{- $formats := .Values.formats | default dict }}
{{- range $value, $flag := dict "migParted" "mig-parted" "deviceConfigManager" "device-config-manager" "kaiwo" "kaiwo" "nos" "nos" }}
{{- with index $formats $value }}
{{- if .enabled }}
- {flag: {{ $flag }}, configMap: {{ .configMap | default "" | quote }}, key: {{ ternary .key "" (not (empty .configMap)) | default "" | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- /* The label of NVIDIA's device plugin is always followed. */}}
- {flag: device-plugin, configMap: {{ ($formats.devicePlugin | default dict).configMap | default (printf "%s/%s" .Release.Namespace (include "tranche.devicePluginConfigs.name" .)) | quote }}, key: ""}
{{- end }}

{{/* A Role that lets a ServiceAccount read one ConfigMap: a dict with root, name, configMap
(NAMESPACE/NAME) and account. */}}
{{- define "tranche.configMapReader" -}}
{{- $namespace := dir .configMap }}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "tranche.labels" .root | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [configmaps]
    resourceNames: [{{ base .configMap | quote }}]
    verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "tranche.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/*
Not empty if pods get requests for GPU memory and compute.
*/}}
{{- define "tranche.podRequests" -}}
{{- if and .Values.gpuResources.enabled .Values.gpuResources.podRequests.enabled }}true{{ end }}
{{- end }}
