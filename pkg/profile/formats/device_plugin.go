package formats

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

const (
	// nvidiaDomain is the prefix of the device plugin's resources. It is optional in the file.
	nvidiaDomain = "nvidia.com/"
	// nvidiaGPU is the resource of whole GPUs.
	nvidiaGPU = nvidiaDomain + "gpu"
)

// migResource is a resource of MIG partitions. The device plugin spells the + of a
// profile as a dot.
var migResource = regexp.MustCompile(`^nvidia\.com/mig-([1-9][0-9]*g\.[1-9][0-9]*gb)([.-].+)?$`)

// readDevicePlugin converts a file to a PartitionProfile. Notes say which parts of it have no effect,
// for people.
func readDevicePlugin(text strict.Text) (v1beta1.PartitionProfileSpec, []string, error) {
	var c pluginConfig
	problems, err := text.Decode(&c)
	if err != nil {
		return v1beta1.PartitionProfileSpec{}, nil, err
	}
	r := pluginReader{problems: problems}
	if c.Version != "" && c.Version != version {
		r.problems.Add("version", "is %q, and %s is what can be read", c.Version, version)
	}
	r.flags(c.Flags)
	r.others(&c)
	rule := v1beta1.Rule{
		GPUs:    &v1beta1.GPUSelector{Vendor: nvidia},
		Sharing: off(),
	}
	r.single = strategyOf(&c) == strategySingle
	if r.single {
		rule.ExtendedResource = means(v1beta1.DeviceAuto)
	}
	if c.Sharing != nil {
		r.sharing(c.Sharing, &rule)
	}
	if err := r.problems.Err(); err != nil {
		return v1beta1.PartitionProfileSpec{}, nil, err
	}
	return v1beta1.PartitionProfileSpec{Rules: []v1beta1.Rule{rule}}, r.notes, nil
}

type pluginReader struct {
	problems *strict.Problems
	notes    []string
	// single: the MIG strategy is single.
	single bool
}

// The MIG strategies. With single, nvidia.com/gpu is a partition on nodes whose GPUs are
// partitioned. With mixed, there is nvidia.com/mig-<profile>.
const (
	strategyNone   = "none"
	strategySingle = "single"
	strategyMixed  = "mixed"
)

// means is an extended resource that means a device.
func means(device v1beta1.ExtendedResourceDevice) *v1beta1.ExtendedResource {
	return &v1beta1.ExtendedResource{Device: device}
}

// strategyOf returns the MIG strategy of a file. If it names none, the GPU operator decides, whose
// default is single. A file that shares nvidia.com/mig-<profile> is for strategy mixed. On GPUs
// without partitions, all strategies are the same.
func strategyOf(c *pluginConfig) string {
	if c.Flags != nil && c.Flags.MigStrategy != nil {
		return *c.Flags.MigStrategy
	}
	if c.Sharing != nil && c.Sharing.MPS == nil && c.Sharing.TimeSlicing != nil && slices.ContainsFunc(c.Sharing.TimeSlicing.Resources, func(s replicatedResource) bool {
		return migResource.MatchString(fullName(s.Name))
	}) {
		return strategyMixed
	}
	return strategySingle
}

// fullName is the name of a resource with its domain.
func fullName(name string) string {
	if strings.HasPrefix(name, nvidiaDomain) {
		return name
	}
	return nvidiaDomain + name
}

func (r *pluginReader) note(path, format string, args ...any) {
	r.notes = append(r.notes, path+": "+fmt.Sprintf(format, args...))
}

func (r *pluginReader) sharing(s *pluginSharing, rule *v1beta1.Rule) {
	switch {
	case s.MPS != nil:
		r.replicated("sharing.mps", s.MPS, v1beta1.MPS, rule)
		if s.TimeSlicing != nil {
			r.note("sharing.timeSlicing", "is not used, nor by the device plugin: mps has precedence")
		}
	case s.TimeSlicing != nil:
		r.replicated("sharing.timeSlicing", s.TimeSlicing, v1beta1.TimeSlicing, rule)
	}
}

func (r *pluginReader) replicated(path string, s *replicated, strategy v1beta1.Strategy, rule *v1beta1.Rule) {
	mps := strategy == v1beta1.MPS
	rule.Sharing.Strategy = strategy
	rule.Sharing.FailRequestsGreaterThanOne = mps
	if s.FailRequestsGreaterThanOne != nil {
		rule.Sharing.FailRequestsGreaterThanOne = *s.FailRequestsGreaterThanOne
	}
	if rule.Sharing.FailRequestsGreaterThanOne {
		r.note(path+".failRequestsGreaterThanOne", "a pod that asks for more is refused when it starts, not when it is scheduled")
	}
	if len(s.Resources) == 0 {
		r.problems.Add(path+".resources", "names no resource")
	}
	for i := range s.Resources {
		r.resource(strict.Index(path+".resources", i), &s.Resources[i], mps, rule)
	}
	if parts := rule.Sharing.Partitions; parts != nil && !s.RenameByDefault {
		parts.ExtendedResource = &v1beta1.PartitionExtendedResource{Device: v1beta1.MIGDevicePartitionReplica}
		r.note(path+".resources", "%smig-<profile> asks for a replica of a partition if the chart's value extendedResources.migReplicas.enabled is true, otherwise for a partition that is not shared", nvidiaDomain)
	}
	if parts := rule.Sharing.Partitions; parts != nil && s.RenameByDefault {
		r.note(path+".renameByDefault", "nothing is named %smig-<profile>.shared: claims ask for replicas of partitions by the class gpu-partition-fraction-share.tranche.dev", nvidiaDomain)
	}
	if !*rule.Sharing.WholeGPUs {
		return
	}
	switch {
	case s.RenameByDefault:
		r.note(path+".renameByDefault", "%s.shared asks for a replica; unlike with the device plugin, %s is there as well and asks for a whole GPU", nvidiaGPU, nvidiaGPU)
	case r.single && !mps:
		rule.ExtendedResource = means(v1beta1.DeviceAutoReplica)
	default:
		rule.ExtendedResource = means(v1beta1.DeviceGPUReplica)
	}
	if mps {
		// As the device plugin's daemon does.
		rule.Sharing.ExclusiveProcess = true
		r.note(path, "a replica has its part of the memory; unlike with the device plugin it has all of the compute units, unless its claim asks for less")
	}
}

// resource adds the sharing of one resource to the rule.
func (r *pluginReader) resource(path string, s *replicatedResource, mps bool, rule *v1beta1.Rule) {
	if s.Rename != nil {
		r.note(path+".rename", "is not used, nor by the device plugin")
	}
	if s.Devices != nil && s.Devices != "all" {
		r.note(path+".devices", "is not used, nor by the device plugin: all GPUs of the node are shared")
	}
	r.replicas(path+".replicas", s.Replicas, mps)
	name := fullName(s.Name)
	profile := migResource.FindStringSubmatch(name)
	switch {
	case s.Name == "":
		r.problems.Add(path+".name", "is missing")
	case name == nvidiaGPU && *rule.Sharing.WholeGPUs, profile != nil && shares(rule, profile[1]):
		r.problems.Add(path+".name", "%s is there twice", name)
	case name == nvidiaGPU:
		*rule.Sharing.WholeGPUs = true
		rule.Sharing.Replicas = s.Replicas
	case profile == nil:
		r.problems.Add(path+".name", "is %q: what can be shared is %s and %smig-<profile>", s.Name, nvidiaGPU, nvidiaDomain)
	case profile[2] != "":
		r.problems.Add(path+".name", "is %q: of the partitions with other engines (+me, -me and so on) there are no shares; share those of %s", s.Name, profile[1])
	case mps:
		r.problems.Add(path+".name", "is %q: MPS is for whole GPUs only, as with the device plugin; use timeSlicing for partitions", s.Name)
	default:
		if rule.Sharing.Partitions == nil {
			// A replica names no amount of memory.
			rule.Sharing.Partitions = &v1beta1.SharedPartitions{Units: []v1beta1.ShareUnit{v1beta1.ByMemory, v1beta1.ByFraction}}
		}
		rule.Sharing.Partitions.Profiles = append(rule.Sharing.Partitions.Profiles, profile[1])
		if s.Replicas != nil {
			rule.Sharing.Partitions.Replicas = append(rule.Sharing.Partitions.Replicas, v1beta1.PartitionReplicas{Profile: profile[1], Count: *s.Replicas})
		}
	}
}

func shares(rule *v1beta1.Rule, profile string) bool {
	return rule.Sharing.Partitions != nil && slices.Contains(rule.Sharing.Partitions.Profiles, profile)
}

func (r *pluginReader) replicas(path string, n *int32, mps bool) {
	switch {
	case n == nil:
		r.problems.Add(path, "is missing")
	case *n < 1:
		r.problems.Add(path, "is %d, it can be 1 to %d", *n, gpu.WholeFraction)
	case mps && *n > gpu.MaxMPSClients:
		r.problems.Add(path, "is %d, and an MPS server takes %d clients", *n, gpu.MaxMPSClients)
	case *n > gpu.WholeFraction:
		r.problems.Add(path, "is %d, and a GPU has at most %d replicas: leave it out of the file, and request memory of class gpu-memory-share-nvidia.tranche.dev, which has no such limit", *n, gpu.WholeFraction)
	}
}
