package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/publish/preview"
)

const templatesExamples = `  # Print what a node with eight H100 will publish
  kubectl tranche templates --inventory h100x8

  # The same for a node name, as JSON
  kubectl tranche templates --inventory h100x8 --node-name gpu-pool-1 -o json

  # With the partitions and shares of a PartitionProfile
  kubectl tranche templates --inventory h100x8 --profile profile.yaml

  # An instance type of AWS, Google Cloud or Azure
  kubectl tranche templates --inventory p5.48xlarge

  # A machine of your own
  echo 'gpus: [{model: H100-80GB, count: 4}, {model: MI300X, count: 2}]' > machine.yaml
  kubectl tranche templates --inventory machine.yaml

  # GPUs that the tables do not have: NVIDIA's without MIG
  echo 'gpus: [{productName: NVIDIA GeForce RTX 5080, architecture: Blackwell,
    memory: 15839Mi, computeUnits: 84, count: 4}]' > machine.yaml
  kubectl tranche templates --inventory machine.yaml`

const templatesLong = `Print the ResourceSlices that a node with certain GPUs will publish, without
hardware or a cluster: as templates for an autoscaler, or to check a profile.

The inventory is one of
%s
or an instance type, such as p5.48xlarge, a3-highgpu-8g or
Standard_ND96isr_H100_v5, or a file as in the example, with GPUs of the models
%s

An A30 or A100 offers partitions with migMode: enabled in the file, otherwise
the whole GPU. Later NVIDIA GPUs offer both. An AMD GPU offers the partitions of
its memoryMode, by default NPS1.

Shares are those of the default settings, or of the profile in a file. The
NVIDIA driver is assumed to include MPS; without it, shares have isolation
"none".

UUIDs are made up, another for each GPU. PCI addresses, which are part of the
names of devices, and NUMA nodes are those of the inventory; a file can give
them: {model: L4-24GB, pci: ["0000:31:00.0"], numaNode: 0}.`

type templatesOptions struct {
	inventory string
	node      string
	profile   string
	resources []string
	mig       bool
}

func newTemplatesCommand(all *options) *cobra.Command {
	o := &templatesOptions{}
	cmd := &cobra.Command{
		Use:     "templates --inventory NAME|FILE",
		Short:   "Print the ResourceSlices that a node with certain GPUs will publish",
		Long:    fmt.Sprintf(templatesLong, indented(models.InventoryNames()), indented(append(models.NVIDIAModels(), models.AMDModels()...))),
		Example: templatesExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.print(all.out, outputOf(cmd)) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.inventory, "inventory", "", "inventory: a name, an instance type, or a file with the GPUs (a path with a slash, or ending in .yaml)")
	flags.StringVar(&o.node, "node-name", "node", "name of the node and its pool")
	flags.StringVar(&o.profile, "profile", "", "file with the PartitionProfile of the node")
	flags.StringSliceVar(&o.resources, "extended-resource", nil, "extended resource that devices of its vendor serve, as the profile says, as in the plugin; repeatable")
	flags.BoolVar(&o.mig, "mig-replicas", false, "the profile says what nvidia.com/mig-<profile> stands for, as in the plugin")
	addOutput(cmd, "yaml", "yaml", "json")
	return cmd
}

func indented(names []string) string {
	p := picture.Page{Screen: picture.Screen{Width: helpWidth}}
	p.Wrap("  ", strings.Join(names, ", "), picture.Normal)
	return strings.TrimSuffix(p.String(), "\n")
}

const helpWidth = 78

func (o *templatesOptions) print(out io.Writer, output string) error {
	if problems := validation.IsDNS1123Subdomain(o.node); len(problems) > 0 {
		return fmt.Errorf("--node-name %q is not a valid node name: %s", o.node, strings.Join(problems, ", "))
	}
	n, err := o.read()
	if err != nil {
		return err
	}
	published, err := preview.Slices(n)
	if err != nil {
		return err
	}
	var printer printers.ResourcePrinter = &printers.YAMLPrinter{}
	if output == "json" {
		printer = &printers.JSONPrinter{}
	}
	// A list as kubectl writes it, which kubectl and clients read back.
	return printer.PrintObj(&resourceapi.ResourceSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: published}, out)
}

func (o *templatesOptions) read() (preview.Node, error) {
	n := preview.Node{Name: o.node, ExtendedResources: map[gpu.Vendor]string{}, MIGResources: o.mig}
	var err error
	if n.Inventory, err = models.LoadInventory(o.inventory); err != nil {
		return n, err
	}
	if o.profile != "" {
		data, err := os.ReadFile(o.profile)
		if err != nil {
			return n, fmt.Errorf("read --profile: %w", err)
		}
		if n.Profile, err = profile.Parse(o.profile, data); err != nil {
			return n, err
		}
	}
	for _, resource := range o.resources {
		vendor, ok := gpu.VendorOf(resource)
		if !ok {
			return n, fmt.Errorf("unknown --extended-resource %q: use nvidia.com/gpu or amd.com/gpu", resource)
		}
		n.ExtendedResources[vendor] = resource
	}
	return n, nil
}
