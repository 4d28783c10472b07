package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// labelsOf are the node labels that describe GPUs. Those with an empty value are removed.
func labelsOf(vendors []hardware.Vendor, gpus []gpu.GPU) map[string]string {
	labels := map[string]string{}
	for _, v := range vendors {
		maps.Copy(labels, v.NodeLabels(slices.DeleteFunc(slices.Clone(gpus), func(g gpu.GPU) bool { return g.Vendor != v.Name() })))
	}
	return labels
}

// labeler keeps the labels of the plugin's node.
type labeler struct {
	client kubernetes.Interface
	node   string
	// keys are those of the labels.
	keys []string

	// mu protects what follows.
	mu sync.Mutex
	// written is what the node has; nil as long as that is not known.
	written map[string]string
	// off is set while Tranche is uninstalled.
	off bool
}

func newLabeler(client kubernetes.Interface, node *nodeWatch) *labeler {
	return &labeler{client: client, node: node.name, keys: slices.Collect(maps.Keys(labelsOf(node.vendors, nil)))}
}

// watchLabels keeps the node's labels as the GPUs are, until ctx ends.
func (p *plugin) watchLabels(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := p.labels.update(ctx, labelsOf(p.node.vendors, p.gpus.gpus())); err != nil {
			klog.FromContext(ctx).Error(err, "The node's labels are not up to date")
		}
	}, cmp.Or(p.LookInterval, defaultLookInterval))
}

// remove removes the labels, until resume is called.
func (l *labeler) remove(ctx context.Context) error {
	l.mu.Lock()
	l.off = true
	l.mu.Unlock()
	return l.update(ctx, nil)
}

func (l *labeler) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.off = false
}

// update writes the labels if they are not what they should be.
func (l *labeler) update(ctx context.Context, wanted map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	labels := map[string]string{}
	for _, key := range l.keys {
		if wanted[key] != "" && !l.off {
			labels[key] = wanted[key]
		}
	}
	if l.written == nil {
		node, err := getNode(ctx, l.client, l.node)
		if err != nil {
			return fmt.Errorf("read the labels of node %s: %w", l.node, err)
		}
		l.written = map[string]string{}
		for _, key := range l.keys {
			if value, ok := node.Labels[key]; ok {
				l.written[key] = value
			}
		}
	}
	if maps.Equal(l.written, labels) {
		return nil
	}
	changes := map[string]any{}
	for _, key := range l.keys {
		changes[key] = nil
		if value, ok := labels[key]; ok {
			changes[key] = value
		}
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
