package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/models"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/share/offer"
	"github.com/tranche-dev/tranche/pkg/terminal"
)

const slicesExamples = `  # Print what a node with eight H100 would publish
  kubectl tranche slices --inventory h100x8

  # The same for a node name, as JSON
  kubectl tranche slices --inventory h100x8 --node-name gpu-pool-1 -o json

  # With the shares of a PartitionProfile
  kubectl tranche slices --inventory h100x8 --profile profile.yaml

  # A machine of your own
  echo 'gpus: [{model: H100-80GB, count: 4}, {model: MI300X, count: 2}]' > machine.yaml
  kubectl tranche slices --inventory machine.yaml`

const slicesLong = `Print the ResourceSlices that a node with certain GPUs would publish, without
hardware or a cluster, for example as a template for an autoscaler.

The inventory is one of
%s
or a file as in the example, with GPUs of the models
%s

An A30 or A100 offers partitions with migMode: enabled in the file, otherwise
the whole GPU. Later NVIDIA GPUs offer both. An AMD GPU offers the partitions of
its memoryMode, by default NPS1.

Shares are those of the default settings, or of the profile in a file. The
NVIDIA driver is assumed to include MPS; without it, shares have isolation
"none".

The slices belong to no node and have made-up names and UUIDs; all else is what
the node's driver says of such GPUs.`

// slicesOptions is what the flags say.
type slicesOptions struct {
	inventory string
	node      string
	profile   string
	output    string
}

func newSlicesCommand(out io.Writer) *cobra.Command {
	o := &slicesOptions{}
	cmd := &cobra.Command{
		Use:           "slices --inventory NAME|FILE",
		Short:         "Print the ResourceSlices of a node with certain GPUs, without hardware",
		Long:          fmt.Sprintf(slicesLong, indented(models.InventoryNames()), indented(append(models.NVIDIAModels(), models.AMDModels()...))),
		Example:       slicesExamples,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return o.print(out) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.inventory, "inventory", "", "GPUs of the node: a name, or a file (a path with a slash, or ending in .yaml)")
	flags.StringVar(&o.node, "node-name", "node", "name of the node")
	flags.StringVar(&o.profile, "profile", "", "file with the PartitionProfile of the node")
	flags.StringVarP(&o.output, "output", "o", "yaml", "output format: yaml or json")
	return cmd
}

// indented lists names in lines of a help text.
func indented(names []string) string {
	p := terminal.Page{Screen: terminal.Screen{Width: helpWidth}}
	p.Wrap("  ", strings.Join(names, ", "), terminal.Normal)
	return strings.TrimSuffix(p.String(), "\n")
}

const helpWidth = 78

func (o *slicesOptions) print(out io.Writer) error {
	if err := checkFormat(o.output, "yaml", "json"); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(o.node); len(problems) > 0 {
		return fmt.Errorf("--node-name %q is no name for a node: %s", o.node, strings.Join(problems, ", "))
	}
	inv, err := models.LoadInventory(o.inventory)
	if err != nil {
		return err
	}
	wanted := profile.Unset()
	if o.profile != "" {
		data, err := os.ReadFile(o.profile)
		if err != nil {
			return fmt.Errorf("read --profile: %w", err)
		}
		if wanted, err = profile.Parse(o.profile, data); err != nil {
			return err
		}
	}
	published, err := slicesOf(inv, o.node, wanted)
	if err != nil {
		return err
	}
	var printer printers.ResourcePrinter = &printers.YAMLPrinter{}
	if o.output == "json" {
		printer = &printers.JSONPrinter{}
	}
	// A list as kubectl writes it, which kubectl and clients read back.
	return printer.PrintObj(&resourceapi.ResourceSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: published}, out)
}

// slicesOf is what the node would publish once it follows the profile. The slices
// have no owner: a reference to a node that is not there would have them refused or
// collected.
func slicesOf(inv *models.Inventory, node string, wanted *profile.Profile) ([]resourceapi.ResourceSlice, error) {
	found, resolved, err := withProfile(inv, node, wanted)
	if err != nil {
		return nil, err
	}
	var gpus []publish.GPU
	var errs []error
	for _, g := range found {
		how := resolved[g.PCIAddress]
		g.Placements = slices.DeleteFunc(g.Placements, func(p gpu.Placement) bool { return !how.Layout.Offers(p) })
		shares, err := offer.Devices(&g, how, g.Vendor == gpu.NVIDIA)
		if err != nil {
			errs = append(errs, err)
		}
		g.Placements = append(g.Placements, shares...)
		gpus = append(gpus, publish.GPU{GPU: g})
	}
	resources, failed := publish.Resources(node, gpus)
	if errs = append(errs, failed...); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	published := publish.Objects(gpu.DriverName, node, resources)
	for i := range published {
		published[i].OwnerReferences = nil
	}
	return published, nil
}

// following are the GPUs in the modes that a profile wants, and what it says of each.
func withProfile(inv *models.Inventory, node string, wanted *profile.Profile) ([]gpu.GPU, map[string]profile.Desired, error) {
	gpus := inv.Hardware(node)
	resolved, err := wanted.Resolve(gpus, nil)
	if err != nil {
		return nil, nil, err
	}
	for i := range inv.AMD {
		if memory := resolved[inv.AMD[i].PCI].Layout.Memory; memory != "" {
			inv.AMD[i].MemoryMode = xcp.MemoryMode(memory)
		}
	}
	gpus = inv.Hardware(node)
	for i := range gpus {
		switch layout := resolved[gpus[i].PCIAddress].Layout; {
		case layout.Cut == profile.CutOff:
			gpus[i] = gpus[i].WithMIG(gpu.MIGOff)
		case layout.Cut == profile.CutStatic, layout.Named:
			gpus[i] = gpus[i].WithMIG(gpu.MIGOn)
		}
	}
	return gpus, resolved, nil
}
