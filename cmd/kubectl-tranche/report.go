package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/text"
)

// mostReport is the maximum size of a report in bytes, before it is compressed.
const mostReport = 64 << 20

const reportLong = `Write a compressed archive to attach to a bug report, as text and YAML: the versions; nodes with
GPUs, GPUNodes, PartitionProfiles, PartitionPlans, DeviceClasses, and Tranche's ResourceSlices;
claims that hold its devices; its events; its workloads, ConfigMaps, pods and their last log lines.

It has no Secrets, no values of environment variables, and no pods of others. It names pods, claims
and nodes: read it before you pass it on. It has at most 64 MiB, before it is compressed.

What you are not allowed to read is missing, and listed in the file unread.txt.`

const reportExamples = `  # Write tranche-report-TIME.tar.gz
  kubectl tranche report

  # Report two nodes only
  kubectl tranche report --node node-a --node node-b -f report.tar.gz`

type reportFlags struct {
	file, system string
	nodes        []string
}

func newReportCommand(o *options) *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:        "report",
		Short:      "Write what a bug report needs to a file",
		Long:       reportLong,
		Example:    reportExamples,
		SuggestFor: []string{"bundle", "bug-report", "support", "dump"},
		Args:       cobra.NoArgs,
		RunE:       o.connected(func(ctx context.Context, s *session, _ []string) error { return s.report(ctx, f) }),
	}
	cmd.Flags().StringVarP(&f.file, "filename", "f", "", "file to write, - for standard output (default: tranche-report-TIME.tar.gz)")
	cmd.Flags().StringSliceVar(&f.nodes, "node", nil, "report only this node; repeatable")
	cmd.Flags().StringVar(&f.system, "system-namespace", "", "namespace of Tranche (default: the one that its DeviceClasses name)")
	return cmd
}

// report writes a report. It fails without a file if the API server cannot be reached.
func (s *session) report(ctx context.Context, f reportFlags) (err error) {
	r := &reportRun{session: s, nodes: f.nodes, system: f.system, left: mostReport}
	v, missing := versions{Client: clientVersion{version, runtime.GOOS + "/" + runtime.GOARCH}}, text.Unread{}
	if err := v.read(ctx, s.connection, f.system, &missing); err != nil {
		if v.Kubernetes == "" {
			return err
		}
		r.lacks("versions.yaml", err)
	}
	if r.system == "" {
		// Without it, its pods are not read, and versions.yaml says why.
		r.system, _ = s.systemNamespace(ctx, "")
	}
	out := s.out
	if terminal, is := out.(picture.Clean); is {
		out = terminal.File // it is no text
	}
	if f.file != "-" {
		if f.file == "" {
			f.file = "tranche-report-" + s.now().UTC().Format("20060102-150405") + ".tar.gz"
		}
		file, err := os.OpenFile(f.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		defer func() {
			if err = errors.Join(err, file.Close()); err != nil {
				err = errors.Join(err, os.Remove(f.file))
			}
		}()
		out = file
	}
	if err := r.write(ctx, out, v); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if f.file == "-" {
		return nil
	}
	return s.say("Wrote %s. It names pods, claims and nodes: read it before you pass it on.", f.file)
}

// reportRun writes one report.
type reportRun struct {
	*session
	// nodes are those to report, nil for all. system is the namespace of Tranche, empty if it is not known.
	nodes  []string
	system string
	to     *tar.Writer
	// left is how many bytes can still be written.
	left   int
	unread []string
}

// reports reports whether a node was asked for.
func (r *reportRun) reports(node string) bool {
	return len(r.nodes) == 0 || slices.Contains(r.nodes, node)
}

// lacks notes what a file lacks, and why.
func (r *reportRun) lacks(file string, err error) {
	if err != nil {
		r.unread = append(r.unread, file+": "+strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

func (r *reportRun) write(ctx context.Context, out io.Writer, v versions) error {
	compressed := gzip.NewWriter(out)
	r.to = tar.NewWriter(compressed)
	progress := read.ProgressOf(ctx)
	defer progress.Done()
	return errors.Join(r.files(ctx, v), r.to.Close(), compressed.Close())
}

func (r *reportRun) files(ctx context.Context, v versions) error {
	document, err := documentOf(v)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := picture.WriteYAML(&b, document); err != nil {
		return err
	}
	if err := r.add("versions.yaml", b.Bytes()); err != nil {
		return err
	}
	if err := r.objects(ctx); err != nil {
		return err
	}
	if err := r.logs(ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.add("unread.txt", []byte(strings.Join(append(r.unread, ""), "\n")))
}

// add adds a file. Of a file that is too long, the end is kept.
func (r *reportRun) add(name string, data []byte) error {
	if name != "unread.txt" {
		if len(data) > r.left {
			r.lacks(name, fmt.Errorf("the first %d bytes are left out, since a report has at most %s", len(data)-r.left, resource.NewQuantity(mostReport, resource.BinarySI)))
			data = data[len(data)-r.left:]
		}
		r.left -= len(data)
	}
	head := &tar.Header{Name: path.Join("tranche-report", name), Mode: 0o600, Size: int64(len(data)), ModTime: r.now().Truncate(time.Second)}
	if err := r.to.WriteHeader(head); err != nil {
		return err
	}
	_, err := r.to.Write(data)
	return err
}
