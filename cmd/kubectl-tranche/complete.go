package main

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// completionDeadline is how long somebody who pressed a key waits.
const completionDeadline = 2 * time.Second

// maxNames is how many names are proposed, and how many are read at once.
const maxNames = 500

var (
	kindGPUNodes = v1beta1.GroupVersion.WithResource(client.ResourceGPUNodes)
	kindProfiles = v1beta1.GroupVersion.WithResource(client.ResourcePartitionProfiles)
	kindPlans    = v1beta1.GroupVersion.WithResource(client.ResourcePartitionPlans)
	kindNodes    = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	kindPods     = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

type completion = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// complete has the commands propose names. Nothing completes files but flags that name files.
func (o *options) complete(root *cobra.Command) {
	byName := map[string]completion{
		"node": o.several(kindGPUNodes), "set-profile": o.inTurn(kindGPUNodes, kindProfiles), "switches": o.several(kindGPUNodes),
		"status": o.several(kindPlans), "pause": o.several(kindPlans), "resume": o.several(kindPlans), "approve": o.several(kindPlans), "undo": o.several(kindPlans),
		"why": o.completing(math.MaxInt, o.explainable), "defrag": o.completing(1, o.waiting),
		"top": fixed("nodes", "gpus", "pods"),
	}
	flags := map[string]completion{
		"node":      o.completing(math.MaxInt, o.nodesOf),
		"inventory": fixed(slices.Concat(models.InventoryNames(), models.InstanceTypes())...),
		"sort-by":   fixed("name", "memory", "compute", "power"),
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.ValidArgsFunction = byName[cmd.Name()]
		for flag, names := range flags {
			if cmd.LocalNonPersistentFlags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, names) // fails only for a flag that there is not
			}
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(root)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
}

func fixed(names ...string) completion {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completing has f propose names for a command with at most so many arguments, in the namespace of
// the user. Names that end with a slash are not complete.
func (o *options) completing(most int, f func(ctx context.Context, namespace string, args []string, typed string) []string) completion {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace()
		if err != nil || len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionDeadline)
		defer cancel()
		names := slices.DeleteFunc(f(ctx, namespace, args, typed), func(name string) bool { return slices.Contains(args, name) })
		if len(names) > 0 && strings.HasSuffix(names[0], "/") {
			return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// inTurn completes each argument by the names of a kind.
func (o *options) inTurn(kinds ...schema.GroupVersionResource) completion {
	return o.completing(len(kinds), func(ctx context.Context, _ string, args []string, typed string) []string {
		return o.names(ctx, kinds[len(args)], "", metav1.ListOptions{}, typed)
	})
}

// several completes all arguments by the names of a kind.
func (o *options) several(kind schema.GroupVersionResource) completion {
	return o.completing(math.MaxInt, func(ctx context.Context, _ string, _ []string, typed string) []string {
		return o.names(ctx, kind, "", metav1.ListOptions{}, typed)
	})
}

// nodesOf proposes the nodes with GPUs, or all for users who are not allowed to list these.
func (o *options) nodesOf(ctx context.Context, _ string, _ []string, typed string) []string {
	names := o.names(ctx, kindGPUNodes, "", metav1.ListOptions{}, typed)
	if names == nil {
		names = o.names(ctx, kindNodes, "", metav1.ListOptions{}, typed)
	}
	return names
}

// waiting proposes the pods that do not run.
func (o *options) waiting(ctx context.Context, namespace string, _ []string, typed string) []string {
	return o.names(ctx, kindPods, namespace, metav1.ListOptions{FieldSelector: "status.phase=Pending"}, typed)
}

// explainable proposes the pods that do not run, TYPE/NAME, or the names for TYPE NAME.
func (o *options) explainable(ctx context.Context, namespace string, args []string, typed string) []string {
	if len(args) > 0 && explainedBy(args[0]) != nil {
		return o.workloads(ctx, args[0], namespace, typed)
	}
	if kind, begun, found := strings.Cut(typed, "/"); found {
		names := o.workloads(ctx, kind, namespace, begun)
		for i := range names {
			names[i] = kind + "/" + names[i]
		}
		return names
	}
	names := o.waiting(ctx, namespace, args, typed)
	if len(names) > 0 {
		return names
	}
	for _, k := range explained {
		if strings.HasPrefix(k.names[0], typed) {
			names = append(names, k.names[0]+"/")
		}
	}
	slices.Sort(names)
	return names
}

// workloads lists the names of a kind that somebody has typed.
func (o *options) workloads(ctx context.Context, kind, namespace, typed string) []string {
	if k := explainedBy(kind); k != nil {
		return o.names(ctx, schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: k.names[1]}, namespace, metav1.ListOptions{}, typed)
	}
	return nil
}

// names lists the names of a kind that begin with what is typed: as many as can be read
// before the context ends. Nothing of the objects but their metadata is read. It is nil if nothing can be read.
func (o *options) names(ctx context.Context, of schema.GroupVersionResource, namespace string, options metav1.ListOptions, typed string) []string {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil
	}
	var found []string
	for options.Limit = maxNames; len(found) < maxNames; {
		page, err := client.Resource(of).Namespace(namespace).List(ctx, options)
		if err != nil {
			return found
		}
		if found == nil {
			found = []string{}
		}
		for i := range page.Items {
			if strings.HasPrefix(page.Items[i].Name, typed) {
				found = append(found, page.Items[i].Name)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	return found
}
