package allocator

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/publish"
)

// Claim is a claim with these requests. Its name is for error messages only.
func Claim(name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
	}
}

// Request asks for a number of devices of a class.
func Request(name, class string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class,
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           count,
	}}
}

// Together adds to a claim that all its devices must have an attribute, and the
// same value of it.
func Together(claim *resourceapi.ResourceClaim, attribute string) *resourceapi.ResourceClaim {
	name := resourceapi.FullyQualifiedName(attribute)
	claim.Spec.Devices.Constraints = append(claim.Spec.Devices.Constraints, resourceapi.DeviceConstraint{MatchAttribute: &name})
	return claim
}

// Slices are the objects that a node's driver would have in the API server.
func Slices(driver, node string, published []publish.Slice) []*resourceapi.ResourceSlice {
	objects := publish.Objects(driver, node, published)
	all := make([]*resourceapi.ResourceSlice, len(objects))
	for i := range objects {
		all[i] = &objects[i]
	}
	return all
}

// known are the classes of files that were read before; its lock protects it.
var known = struct {
	sync.Mutex
	classes map[string][]*resourceapi.DeviceClass
}{classes: map[string][]*resourceapi.DeviceClass{}}

// Classes reads the device classes out of manifests, like those that helm
// renders, and leaves everything else out. A file is read once a process: nobody may
// change the classes.
func Classes(path string) ([]*resourceapi.DeviceClass, error) {
	known.Lock()
	defer known.Unlock()
	if known.classes[path] == nil {
		all, err := readClasses(path)
		if err != nil {
			return nil, err
		}
		known.classes[path] = all
	}
	return slices.Clone(known.classes[path]), nil
}

func readClasses(path string) ([]*resourceapi.DeviceClass, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []*resourceapi.DeviceClass
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if kind.Kind != "DeviceClass" {
			continue
		}
		class := &resourceapi.DeviceClass{}
		if err := yaml.UnmarshalStrict(document, class); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, class)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no DeviceClass in it", path)
	}
	return all, nil
}
