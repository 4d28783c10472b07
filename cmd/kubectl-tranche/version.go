package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/text"
)

// version is set when the program is linked.
var version = "dev"

const (
	// versionLabel has the version of the chart's application on all its pods.
	versionLabel = "app.kubernetes.io/version"
	// partLabel selects the pods of the chart, componentLabel has their component.
	partLabel      = "app.kubernetes.io/part-of=tranche"
	componentLabel = "app.kubernetes.io/component"
)

type versions struct {
	Client clientVersion `json:"client"`
	// Kubernetes is the version of the API server.
	Kubernetes string `json:"kubernetesVersion,omitempty"`
	// Server has the programs that run in the cluster. Two versions of one are an upgrade.
	Server []serverVersion `json:"components,omitempty"`
	// Unread is what of the cluster could not be read.
	Unread []text.Unread `json:"unread,omitempty"`
}

type clientVersion struct {
	Version  string `json:"version"`
	Platform string `json:"platform"`
}

type serverVersion struct {
	Component string `json:"name"`
	Version   string `json:"version"`
	Pods      int    `json:"podCount"`
}

func newVersionCommand(o *options) *cobra.Command {
	system, clientOnly := "", false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of what runs in the cluster",
		Long: "Print the version of this program, of Kubernetes, and of Tranche's programs in the cluster.\n\n" +
			"Requires permission to list the pods of Tranche. Without it, the versions of this program and of\n" +
			"Kubernetes are printed, and without a cluster, the version of this program and an error.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, s := versions{Client: clientVersion{version, runtime.GOOS + "/" + runtime.GOARCH}}, o.session(cmd)
			if clientOnly {
				return s.show(v, v.draw)
			}
			missing := text.Unread{Consequence: "which versions run in the cluster is not known"}
			err := s.connect(o)
			if err == nil {
				err = v.read(cmd.Context(), s.connection, system, &missing)
			}
			switch {
			case err != nil && v.Kubernetes == "":
				return errors.Join(s.show(v, v.draw), plainly(err))
			case err != nil:
				missing.Message = err.Error()
				if apierrors.IsForbidden(err) {
					missing = read.Failed(missing, err)
				}
				v.Unread = append(v.Unread, missing)
			}
			return o.advise(cmd, s, s.show(v, v.draw))
		},
	}
	addOutput(cmd, "", "json", "yaml")
	cmd.Flags().BoolVar(&clientOnly, "client", false, "do not ask the cluster")
	cmd.Flags().StringVar(&system, "system-namespace", "", "namespace of Tranche (default: the one that its DeviceClasses name)")
	return cmd
}

// read asks the cluster. It says what it asks for in missing.
func (v *versions) read(ctx context.Context, c connection, system string, missing *text.Unread) error {
	server, err := discovery.ToServerVersionInterfaceWithContext(c.Kubernetes.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	v.Kubernetes = server.GitVersion
	missing.Verb, missing.Resource = "list", read.Classes.Resource
	if system, err = c.systemNamespace(ctx, system); err != nil {
		return err
	}
	missing.Resource, missing.Namespace = read.Pods.Resource, system
	pods, err := read.List[corev1.Pod](ctx, c, system, metav1.ListOptions{LabelSelector: partLabel})
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you are not allowed to list the pods of Tranche: %w", err)
	case err != nil:
		return fmt.Errorf("list the pods of Tranche: %w", err)
	}
	found := map[serverVersion]int{}
	for i := range pods {
		labels := pods[i].Labels
		if labels[componentLabel] != "" && pods[i].Status.Phase == corev1.PodRunning {
			found[serverVersion{Component: labels[componentLabel], Version: labels[versionLabel]}]++
		}
	}
	for of, n := range found {
		of.Pods = n
		v.Server = append(v.Server, of)
	}
	slices.SortFunc(v.Server, func(a, b serverVersion) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Version, b.Version))
	})
	if len(v.Server) == 0 {
		return fmt.Errorf("no pods with the label %s run in the namespace %s", partLabel, system)
	}
	return nil
}

func (v *versions) draw(p *picture.Page) {
	line := func(what, said string) { p.Wrap(what+": ", said, picture.Normal) }
	line("kubectl-tranche", v.Client.Version+" "+v.Client.Platform)
	if v.Kubernetes != "" {
		line("Kubernetes", v.Kubernetes)
	}
	for _, s := range v.Server {
		line("tranche-"+s.Component, fmt.Sprintf("%s (%s)", s.Version, text.Count(s.Pods, "pod")))
	}
	p.Unread(v.Unread)
}
