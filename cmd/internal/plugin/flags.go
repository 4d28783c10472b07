package plugin

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/node"
)

func addFlags(flags *pflag.FlagSet, o *Options) {
	c := &o.Config
	flags.StringVar(&c.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of the node; default: NODE_NAME of the environment")
	flags.StringVar((*string)(&c.PodUID), "pod-uid", os.Getenv("POD_UID"), "UID of the pod, for rolling updates; default: POD_UID of the environment")
	flags.StringVar(&c.Installation, "installation", "", "what this plugin belongs to (namespace/release); plugins of two installations do not work on one node")
	addKubeletDir(flags, c)
	flags.StringVar(&c.CDIDir, "cdi-dir", "/var/run/cdi", "folder that the container runtime reads CDI files from")
	flags.StringVar(&c.HostRoot, "host-root", "/host", "where the host's root folder is mounted")
	flags.StringVar(&o.NVIDIADriverRoot, "nvidia-driver-root", "", "folder of the NVIDIA driver on the host; empty: search")
	flags.StringVar(&o.CDIHook, "cdi-hook", "/usr/bin/nvidia-cdi-hook", "program that CDI hooks run; it is copied to the host")
	flags.StringVar(&c.MPSDir, "mps-dir", "/run/tranche/mps", "folder of NVIDIA's MPS daemons, by the same path here and on the host")
	c.MPSSharedMemory = mps.DefaultShmSize
	flags.Var((*byteSize)(&c.MPSSharedMemory), "mps-shared-memory", "size of the /dev/shm that the containers of one MPS daemon have together; holds for daemons that start from then on")
	flags.StringVar(&c.HTTPAddress, "http-address", ":8080", "address of /metrics, /healthz and /readyz")
	flags.BoolVar(&c.IgnoreOtherOwners, "ignore-other-owners", false, "publish GPUs even if a device plugin or another driver serves them")
	flags.BoolVar(&c.AdoptForeign, "adopt-foreign-partitions", false, "remove partitions that Tranche did not make when nobody uses them, instead of leaving them alone")
	flags.Var(legacyResources{&c.LegacyResources}, "legacy-resource", "extended resource that whole GPUs of its vendor stand for beside their classes: nvidia.com/gpu, amd.com/gpu; may be given for each vendor")
	flags.StringVar(&c.DevicePluginConfigsDir, "device-plugin-configs-dir", "/etc/tranche/device-plugin-configs", "folder with configuration files of NVIDIA's device plugin, whose sharing is understood; need not be there. One applies to nodes whose label nvidia.com/device-plugin.config names it, unless their label tranche.dev/profile or their GPUNode's spec names a profile")
	flags.BoolVar(&c.MemoryModes, "amd-memory-modes", false, "load AMD's driver anew where a profile wants another memory mode")
	flags.BoolVar(&c.NodeLabels, "node-labels", false, "label the node as NVIDIA's feature discovery does: nvidia.com/gpu.product, .count and .memory")
	flags.StringVar(&c.UninstallOrder, "uninstall-order", "", "ConfigMap (namespace/name) that tells that Tranche is being uninstalled; empty: nothing does")
}

func addKubeletDir(flags *pflag.FlagSet, c *node.Config) {
	flags.StringVar(&c.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's folder, by the same path here and on the host")
}

// byteSize is a flag that takes an amount of memory as Kubernetes writes it.
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

// legacyResources is a flag that takes extended resources. The domain of one
// tells whose cards it stands for.
type legacyResources struct{ byVendor *map[gpu.Vendor]string }

// String implements pflag.Value.
func (l legacyResources) String() string {
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
func (l legacyResources) Set(resource string) error {
	for _, vendor := range []gpu.Vendor{gpu.NVIDIA, gpu.AMD} {
		if strings.HasPrefix(resource, string(vendor)+".com/") {
			if *l.byVendor == nil {
				*l.byVendor = map[gpu.Vendor]string{}
			}
			(*l.byVendor)[vendor] = resource
			return nil
		}
	}
	return fmt.Errorf("%q is no resource of a vendor: give nvidia.com/gpu or amd.com/gpu", resource)
}

// Type implements pflag.Value.
func (l legacyResources) Type() string { return "resource" }
