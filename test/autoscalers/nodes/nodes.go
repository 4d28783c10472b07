package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// Driver is the name of the product's driver.
const Driver = "gpu.tranche.dev"

// Classes of the chart.
const (
	Smallest = "gpu-mig-1g-10gb.tranche.dev"
	Half     = "gpu-mig-3g-40gb.tranche.dev"
	CPX      = "gpu-xcp-cpx.tranche.dev"
	Whole    = "gpu.tranche.dev"
	Share    = "gpu-fraction-share-nvidia.tranche.dev"
)

// root is the folder of the product, from that of a test.
var root = filepath.Join("..", "..", "..")

// templates are those of the models that were asked for.
var templates = struct {
	sync.Mutex
	byModel map[string][]byte
}{byModel: map[string][]byte{}}

// Slices are the slices that a node of a model publishes.
func Slices(ctx context.Context, model, node string) ([]resourceapi.ResourceSlice, error) {
	templates.Lock()
	defer templates.Unlock()
	if templates.byModel[model] == nil {
		command := exec.CommandContext(ctx, "go", "run", "./cmd/kubectl-tranche", "templates", "--inventory", model, "-o", "json")
		command.Dir, command.Stderr = root, os.Stderr
		out, err := command.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		templates.byModel[model] = out
	}
	var list resourceapi.ResourceSliceList
	if err := json.Unmarshal(templates.byModel[model], &list); err != nil {
		return nil, fmt.Errorf("templates of %s: %w", model, err)
	}
	for i := range list.Items {
		slice := &list.Items[i]
		slice.Name = fmt.Sprintf("%s-%d", node, i)
		slice.Spec.NodeName, slice.Spec.Pool.Name = ptr.To(node), node
	}
	return list.Items, nil
}

// Classes are the DeviceClasses of the chart, as helm renders them.
func Classes() ([]*resourceapi.DeviceClass, error) {
	path := filepath.Join(root, "deployments", "helm", "testdata", "defaults.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []*resourceapi.DeviceClass
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		class := &resourceapi.DeviceClass{}
		if err := yaml.Unmarshal(document, class); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if class.Kind == "DeviceClass" {
			all = append(all, class)
		}
	}
	return all, nil
}
