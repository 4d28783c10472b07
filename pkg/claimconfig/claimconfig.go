// Package claimconfig is the opaque configuration of this driver, in ResourceClaims and DeviceClasses: of
// kind ShareConfig, with the memory limit of shares. It holds for the claim that has it, and for nothing
// that another claim can have, too: settings of a GPU are in PartitionProfiles. Pure.
package claimconfig

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// APIVersion and Kind are those of a ShareConfig.
const (
	APIVersion = "tranche.dev/v1beta1"
	Kind       = "ShareConfig"
)

// ShareConfig has the settings of a claim's shares.
type ShareConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// MemoryLimit is the most memory that the containers of a pod can have of each share, a quantity
	// of bytes ("8Gi"). What the claim requests of a share is guaranteed. Of a request for several
	// shares, each has this limit. The node's profile can allow less (maxMemoryLimitPercent).
	MemoryLimit any `json:"memoryLimit"`
}

// amount is what a memory limit can be. Exponents are none: they are slow to compare.
var amount = regexp.MustCompile(`^[0-9]{1,20}([.][0-9]{1,9})?([KMGTP]i|[kMGTP])?$`)

// New returns the configuration of all requests of a claim.
func New(mib int64) resourceapi.DeviceClaimConfiguration {
	raw, err := json.Marshal(ShareConfig{APIVersion: APIVersion, Kind: Kind, MemoryLimit: resource.NewQuantity(mib*gpu.MiB, resource.BinarySI).String()})
	if err != nil {
		panic("claimconfig: encode: " + err.Error()) // cannot happen: all types can be encoded
	}
	return resourceapi.DeviceClaimConfiguration{DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: names.DriverName, Parameters: runtime.RawExtension{Raw: raw}},
	}}
}

// decode returns the memory limit in bytes, of whole MiB.
func decode(name string, raw []byte) (int64, error) {
	var c ShareConfig
	problems, err := strict.Text{File: name, Data: raw, Before: -1}.Decode(&c)
	if err != nil {
		return 0, err
	}
	if c.APIVersion != APIVersion {
		problems.Add("apiVersion", "is %.60q, it must be %s", c.APIVersion, APIVersion)
	}
	if c.Kind != Kind {
		problems.Add("kind", "is %.60q, it must be %s", c.Kind, Kind)
	}
	var limit resource.Quantity
	text := fmt.Sprint(c.MemoryLimit)
	if amount.MatchString(text) {
		limit, err = resource.ParseQuantity(text)
	}
	switch {
	case c.MemoryLimit == nil:
		problems.Add("memoryLimit", "is missing")
	case err != nil || limit.CmpInt64(gpu.MiB) < 0:
		problems.Add("memoryLimit", "is %.60q, it must be an amount of at least 1Mi, as in 8Gi", text)
	}
	if err := problems.Err(); err != nil {
		return 0, err
	}
	if limit.CmpInt64(math.MaxInt64) > 0 {
		return math.MaxInt64 / gpu.MiB * gpu.MiB, nil
	}
	return limit.Value() / gpu.MiB * gpu.MiB, nil
}

// Limits are the memory limits that the configuration of an allocation asks for.
type Limits []limit

type limit struct {
	source   resourceapi.AllocationConfigSource
	requests []string
	bytes    int64
}

// Read reads the configuration of an allocation that is for this driver. An error names the offending key.
func Read(configs []resourceapi.DeviceAllocationConfiguration) (all Limits, err error) {
	for i, c := range configs {
		if c.Opaque == nil || c.Opaque.Driver != names.DriverName {
			continue
		}
		where := fmt.Sprintf("the claim's configuration for %s", names.DriverName)
		if c.Source == resourceapi.AllocationConfigSourceClass {
			where = fmt.Sprintf("the device class's configuration for %s", names.DriverName)
		}
		bytes, err := decode(where, c.Opaque.Parameters.Raw)
		if err != nil {
			return nil, fmt.Errorf("status.allocation.devices.config[%d]: %w: change it, and create the pod again", i, err)
		}
		all = append(all, limit{c.Source, c.Requests, bytes})
	}
	return all, nil
}

// Of returns the limit of a request, or request/subrequest, in bytes; zero: none. That of the claim counts
// before that of the device class, and the last before others.
func (l Limits) Of(request string) (bytes int64) {
	parent, _, _ := strings.Cut(request, "/")
	for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim} {
		for _, c := range l {
			if c.source == source && (len(c.requests) == 0 || slices.Contains(c.requests, request) || slices.Contains(c.requests, parent)) {
				bytes = c.bytes
			}
		}
	}
	return bytes
}
