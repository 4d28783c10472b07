{{- define "tranche.scheduler.name" -}}
{{- include "tranche.fullname" . }}-scheduler
{{- end }}

{{- define "tranche.scheduler.selectorLabels" -}}
{{ include "tranche.selectorLabels" . }}
app.kubernetes.io/component: scheduler
{{- end }}

{{/* What kube-scheduler does otherwise than the default one: it fills nodes. */}}
{{- define "tranche.scheduler.configuration" -}}
{{- $scheduler := .Values.scheduler -}}
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
              - {name: tranche.dev/gpu-compute, weight: 1} # counts for pods that request it
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
