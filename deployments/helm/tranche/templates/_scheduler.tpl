{{- define "tranche.scheduler.name" -}}
{{- include "tranche.fullname" . }}-scheduler
{{- end }}

{{- define "tranche.scheduler.selectorLabels" -}}
{{ include "tranche.selectorLabels" . }}
app.kubernetes.io/component: scheduler
{{- end }}

{{/*
The values of the second scheduler, as YAML. `helm upgrade --reuse-values` from a release that did
not have them keeps out the chart's defaults, so they are here again; a test compares them.
*/}}
{{- define "tranche.scheduler.values" -}}
{{- $values := deepCopy .Values.scheduler }}
{{- range $key, $default := fromYaml (include "tranche.scheduler.defaults" .) }}
{{- if not (hasKey $values $key) }}
{{- $_ := set $values $key $default }}
{{- end }}
{{- end }}
{{- toYaml $values }}
{{- end }}

{{- define "tranche.scheduler.defaults" -}}
schedulerName: tranche-packing
assignment: {enabled: false}
image: {repository: registry.k8s.io/kube-scheduler}
replicas: 2
filterTimeout: 2s
port: 10259
logVerbosity: 2
resources: {requests: {cpu: 100m, memory: 128Mi}}
priorityClassName: system-cluster-critical
tolerations:
  - {key: node-role.kubernetes.io/control-plane, operator: Exists}
  - {key: CriticalAddonsOnly, operator: Exists}
nodeSelector: {kubernetes.io/os: linux}
{{- end }}

{{/* What kube-scheduler does otherwise than the default one: it fills nodes. */}}
{{- define "tranche.scheduler.configuration" -}}
{{- $scheduler := include "tranche.scheduler.values" . | fromYaml -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
# Also with one replica: while it is replaced there are two.
leaderElection:
  leaderElect: true
  resourceName: {{ include "tranche.scheduler.name" . }}
  resourceNamespace: {{ .Release.Namespace }}
profiles:
  - schedulerName: {{ $scheduler.schedulerName }}
    plugins:
      multiPoint:
        disabled:
          - name: NodeResourcesBalancedAllocation
    pluginConfig:
      - name: NodeResourcesFit
        args:
          scoringStrategy:
            type: MostAllocated
            resources:
              - {name: cpu, weight: 1}
              - {name: memory, weight: 1}
      # By default, the replicas of a workload spread over nodes, too.
      - name: PodTopologySpread
        args:
          defaultingType: List
          defaultConstraints:
            - {topologyKey: topology.kubernetes.io/zone, maxSkew: 5, whenUnsatisfiable: ScheduleAnyway}
      - name: DynamicResources
        args:
          filterTimeout: {{ $scheduler.filterTimeout }}
{{- end }}
