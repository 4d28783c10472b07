package controller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// DefaultPauseLabels are the node labels that pause monitoring pods which keep GPUs busy: those of
// NVIDIA's GPU operator, and one for everything else. AMD's operator has no such labels; its
// metrics exporter can select ours with spec.metricsExporter.selector.
var DefaultPauseLabels = []string{
	"nvidia.com/gpu.deploy.dcgm-exporter",
	"nvidia.com/gpu.deploy.dcgm",
	"nvidia.com/gpu.deploy.nvsm",
	"nvidia.com/gpu.deploy.gpu-feature-discovery",
	"nvidia.com/gpu.deploy.client",
	names.LabelGPUMonitoring,
}

// DefaultMonitoringNamespaces are the usual namespaces of the DaemonSets that the labels pause.
var DefaultMonitoringNamespaces = []string{"gpu-operator", "nvidia-gpu-operator", "kube-amd-gpu", "kube-system"}

// mostNamed is how many items a message lists; the rest is counted.
const mostNamed = 5

func hasNodeTaint(node *corev1.Node) bool { return hasTaint(node, names.TaintNodeSwitching) }

// wrap adds what failed to an error; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
