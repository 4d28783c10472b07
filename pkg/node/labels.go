package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// The labels that NVIDIA's feature discovery puts on a node, as far as tools
// outside NVIDIA's stack read them. They say nothing about AMD GPUs: AMD's node
// labeller has labels of its own, which can run beside us, since it touches no
// GPU.
const (
	labelProduct = "nvidia.com/gpu.product"
	labelCount   = "nvidia.com/gpu.count"
	labelMemory  = "nvidia.com/gpu.memory"
)

// labelsOf says what the NVIDIA GPUs of a node are, in the words of NVIDIA's
// feature discovery: the product with dashes for spaces, the memory of one GPU
// in MiB. Where products are mixed, one of them would be a lie to whoever
// selects by it, so there is none, and the memory is the smallest: what a pod
// can count on.
func labelsOf(gpus []gpu.GPU) map[string]string {
	var products []string
	count, memory := 0, int64(0)
	for i := range gpus {
		g := &gpus[i]
		if g.Vendor != gpu.NVIDIA {
			continue
		}
		count++
		if product := strings.Join(strings.Fields(g.ProductName), "-"); !slices.Contains(products, product) {
			products = append(products, product)
		}
		if memory == 0 || g.Memory < memory {
			memory = g.Memory
		}
	}
	if count == 0 {
		return nil
	}
	labels := map[string]string{labelCount: strconv.Itoa(count)}
	if memory > 0 {
		labels[labelMemory] = strconv.FormatInt(memory>>20, 10)
	}
	if len(products) == 1 {
		labels[labelProduct] = products[0]
	}
	return labels
}

// labeler keeps the labels of the plugin's node.
type labeler struct {
	client kubernetes.Interface
	node   string

	// mu protects what follows.
	mu sync.Mutex
	// written is what the node has; nil as long as that is not known.
	written map[string]string
	// off is set while Tranche is uninstalled.
	off bool
}

// watchLabels keeps the node's labels as the GPUs are, until ctx ends.
func (p *plugin) watchLabels(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := p.labels.update(ctx, labelsOf(p.gpus.gpus())); err != nil {
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
	if l.off {
		wanted = nil
	}
	if l.written == nil {
		node, err := getNode(ctx, l.client, l.node)
		if err != nil {
			return fmt.Errorf("read the labels of node %s: %w", l.node, err)
		}
		l.written = map[string]string{}
		for _, key := range []string{labelProduct, labelCount, labelMemory} {
			if value, ok := node.Labels[key]; ok {
				l.written[key] = value
			}
		}
	}
	if maps.Equal(l.written, wanted) {
		return nil
	}
	changes := map[string]any{labelProduct: nil, labelCount: nil, labelMemory: nil}
	for key, value := range wanted {
		changes[key] = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changes}})
	if err != nil {
		return err
	}
	if _, err := l.client.CoreV1().Nodes().Patch(ctx, l.node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write the labels of node %s: %w", l.node, err)
	}
	l.written = maps.Clone(wanted)
	if l.written == nil {
		l.written = map[string]string{}
	}
	return nil
}
