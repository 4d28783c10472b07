package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

// LabelsOf returns the node labels that describe GPUs.
func LabelsOf(vendors []hardware.Vendor, gpus []hardware.OfferedGPU) map[string]string {
	labels := map[string]string{}
	for _, v := range vendors {
		maps.Copy(labels, v.NodeLabels(slices.DeleteFunc(slices.Clone(gpus), func(g hardware.OfferedGPU) bool { return g.Vendor != v.Name() })))
	}
	return labels
}

// writeTimeout is how long the API server may take to read and write the plugin's parts of a node.
const writeTimeout = 30 * time.Second

// Labeler writes the labels of the plugin's node.
type Labeler struct {
	client kubernetes.Interface
	node   string
	// vendors tell which labels are theirs.
	vendors []hardware.Vendor

	// mu protects the fields below.
	mu sync.Mutex
	// written has the labels of the node; nil before the first read.
	written map[string]string
}

// NewLabeler returns a Labeler for the labels of a node's vendors.
func NewLabeler(client kubernetes.Interface, node *Node) *Labeler {
	return &Labeler{client: client, node: node.name, vendors: node.Vendors}
}

// Update writes the labels if they differ from those of the node. Without wanted, it removes them.
func (l *Labeler) Update(ctx context.Context, wanted map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	labels := maps.Clone(wanted)
	if labels == nil {
		labels = map[string]string{}
	}
	if l.written == nil {
		node, err := GetNode(ctx, l.client, l.node)
		if err != nil {
			return fmt.Errorf("read the labels of node %s: %w", l.node, err)
		}
		l.written = map[string]string{}
		for key, value := range node.Labels {
			if slices.ContainsFunc(l.vendors, func(v hardware.Vendor) bool { return v.IsNodeLabel(key) }) {
				l.written[key] = value
			}
		}
	}
	if maps.Equal(l.written, labels) {
		return nil
	}
	changes := map[string]any{}
	for key := range l.written {
		changes[key] = nil
	}
	for key, value := range labels {
		changes[key] = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changes}})
	if err != nil {
		return err
	}
	if _, err := l.client.CoreV1().Nodes().Patch(ctx, l.node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write the labels of node %s: %w", l.node, err)
	}
	l.written = labels
	return nil
}
