package switchover

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

const (
	// TaintKey is the key of the taints on cards, and on nodes, that are being
	// switched.
	TaintKey = v1alpha1.RepartitioningTaint
	// NodeLabel is the label of a DeviceTaintRule of ours that names the node, cut if
	// it is too long; the annotation of that name has it in full.
	NodeLabel = "tranche.dev/node"
	// ManagedByLabel marks the DeviceTaintRules of the controller, by ManagedBy.
	ManagedByLabel = v1alpha1.ManagedByLabel
	// ManagedBy is its value.
	ManagedBy = "tranche-controller"
	// PausedValue is what the labels of paused clients are set to. The operators start
	// a client where its label is "true".
	PausedValue = v1alpha1.PausedValue
	// controlPlaneLabel marks the nodes of the control plane.
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
)

// DefaultPauseLabels are the labels by which clients that keep cards busy are kept off
// a node: those of NVIDIA's GPU operator (its components' nodeSelector, and that of
// clients that join them), and one for everything else. AMD's operator has no such
// labels; its metrics exporter follows ours with spec.metricsExporter.selector.
var DefaultPauseLabels = []string{
	"nvidia.com/gpu.deploy.dcgm-exporter",
	"nvidia.com/gpu.deploy.dcgm",
	"nvidia.com/gpu.deploy.nvsm",
	"nvidia.com/gpu.deploy.gpu-feature-discovery",
	"nvidia.com/gpu.deploy.client",
	"tranche.dev/gpu-client",
}

// ruleName is the name of the DeviceTaintRule of a card.
func ruleName(node, card string) string {
	return shorten(fmt.Sprintf("tranche-%s-%s", node, card), validation.DNS1123SubdomainMaxLength)
}

// nodeLabelValue is a node's name as it fits in a label.
func nodeLabelValue(node string) string {
	return shorten(node, validation.LabelValueMaxLength)
}

// taintValue is a profile's name as it fits in a taint.
func taintValue(profile string) string { return v1alpha1.RepartitioningTaintValue(profile) }

// shorten cuts a name that is too long, and makes up for it by a hash.
func shorten(name string, most int) string {
	if len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:most-9], "-.") + "-" + hex.EncodeToString(sum[:4])
}

// hasNodeTaint tells whether our taint is on a node.
func hasNodeTaint(node *corev1.Node) bool {
	for _, t := range node.Spec.Taints {
		if t.Key == TaintKey {
			return true
		}
	}
	return false
}
