package plugin

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/node"
)

func addFlags(flags *pflag.FlagSet, o *Options) {
	c := &o.Config
	flags.StringVar(&c.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of the node; default: NODE_NAME")
	flags.StringVar((*string)(&c.PodUID), "pod-uid", os.Getenv("POD_UID"), "UID of the pod, for rolling updates; default: POD_UID")
	flags.StringVar(&c.Installation, "installation", "", "namespace/release of the installation; plugins of two installations do not run on one node")
	addKubeletDir(flags, c)
	flags.StringVar(&c.CDIDir, "cdi-dir", "/var/run/cdi", "directory from which the container runtime reads CDI files")
	flags.StringVar(&c.HostRoot, "host-root", "/host", "mount point of the host's root directory")
	flags.StringVar(&o.MachineRoot, "machine-root", "", "root directory of a simulated machine, the same path here and on the host; empty, or no such directory: the host's own hardware")
	flags.StringVar(&o.NVIDIADriverRoot, "nvidia-driver-root", "", "directory of the NVIDIA driver on the host; empty: search")
	flags.StringVar(&o.CDIHook, "cdi-hook", "/usr/bin/nvidia-cdi-hook", "program for CDI hooks, copied to the host")
	flags.StringVar(&c.Hook, "hook", "/usr/bin/tranche-hook", "program that limits the memory of shares when containers start, copied to the host")
	flags.StringVar(&c.MPSDir, "mps-dir", "/run/tranche/mps", "directory of the MPS daemons, the same path here and on the host")
	c.MPSSharedMemory = mps.DefaultShmSize
	flags.Var((*byteSize)(&c.MPSSharedMemory), "mps-shared-memory-size", "size of the /dev/shm that the containers of one MPS daemon share")
	flags.StringVar(&c.HTTPAddress, "http-address", ":8080", "address of /metrics, /healthz and /readyz")
	flags.BoolVar(&c.IgnoreOtherSystems, "ignore-other-systems", false, "publish GPUs that another system serves")
	flags.Var(nodeSelector{&c.ManagedNodes}, "managed-nodes", "labels of the nodes whose GPUs Tranche manages (example.com/tranche=true); empty: all")
	flags.BoolVar(&c.RemoveIdleForeign, "remove-idle-foreign-partitions", false, "remove idle partitions that Tranche did not create")
	flags.Var(extendedResources{&c.ExtendedResources}, "extended-resource", "extended resource that devices of its vendor serve, as the profile says: nvidia.com/gpu, amd.com/gpu; repeatable")
	flags.BoolVar(&c.MIGExtendedResources, "mig-replicas", false, "let profiles say what nvidia.com/mig-<profile> stands for: a partition, or a replica of one")
	flags.BoolVar(&c.MemoryModes, "amd-memory-partitions", false, "reload AMD's driver where a profile changes the memory mode")
	flags.BoolVar(&c.UntestedLimits, "amd-share-limits", false, "have the kernel's controller dmem limit the memory of shares of AMD's GPUs, which was never tried on a GPU")
	flags.BoolVar(&c.GPUResources, "gpu-resources", false, "write GPU memory and compute into the node's status (tranche.dev/gpu-memory, tranche.dev/gpu-compute)")
	flags.BoolVar(&c.NodeLabels, "node-labels", false, "write the node labels of NVIDIA's GPU feature discovery and AMD's node labeller")
	flags.DurationVar(&c.UsageInterval, "usage-interval", 10*time.Second, "how often to measure how much the GPUs are used; 0: never")
	flags.StringVar(&c.DaemonSet, "own-daemonset", "", "DaemonSet (namespace/name) of the plugin: the plugin cleans up its node if it is being deleted")
}

func addKubeletDir(flags *pflag.FlagSet, c *node.Config) {
	flags.StringVar(&c.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's root directory, the same path here and on the host")
}

type byteSize int64

// leastSize is the least that a byteSize can be.
const leastSize = 1 << 20

// String implements pflag.Value.
func (b *byteSize) String() string {
	return resource.NewQuantity(int64(*b), resource.BinarySI).String()
}

// Set implements pflag.Value.
func (b *byteSize) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return err
	}
	if q.CmpInt64(leastSize) < 0 {
		return fmt.Errorf("%s is less than 1Mi", text)
	}
	*b = byteSize(q.Value())
	return nil
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "quantity" }

// nodeSelector is a flag that takes a label selector.
type nodeSelector struct{ selector *labels.Selector }

// String implements pflag.Value.
func (s nodeSelector) String() string {
	if s.selector == nil || *s.selector == nil {
		return ""
	}
	return (*s.selector).String()
}

// Set implements pflag.Value.
func (s nodeSelector) Set(text string) error {
	selector, err := labels.Parse(text)
	if err == nil && !selector.Empty() {
		*s.selector = selector
	}
	return err
}

// Type implements pflag.Value.
func (s nodeSelector) Type() string { return "selector" }

// extendedResources is a flag that takes extended resources. The domain of one
// tells whose GPUs it stands for.
type extendedResources struct{ byVendor *map[gpu.Vendor]string }

// String implements pflag.Value.
func (l extendedResources) String() string {
	if l.byVendor == nil {
		return ""
	}
	var all []string
	for _, resource := range *l.byVendor {
		all = append(all, resource)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// Set implements pflag.Value.
func (l extendedResources) Set(resource string) error {
	vendor, ok := gpu.VendorOf(resource)
	if !ok {
		return fmt.Errorf("%q is not a vendor's resource: use nvidia.com/gpu or amd.com/gpu", resource)
	}
	if *l.byVendor == nil {
		*l.byVendor = map[gpu.Vendor]string{}
	}
	(*l.byVendor)[vendor] = resource
	return nil
}

// Type implements pflag.Value.
func (l extendedResources) Type() string { return "resource" }
