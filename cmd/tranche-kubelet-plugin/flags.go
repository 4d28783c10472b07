package main

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/tranche-dev/tranche/pkg/node"
)

func addFlags(flags *pflag.FlagSet, c *node.Config) {
	flags.StringVar(&c.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of the node; default: NODE_NAME of the environment")
	flags.StringVar((*string)(&c.PodUID), "pod-uid", os.Getenv("POD_UID"), "UID of the pod, for rolling updates; default: POD_UID of the environment")
	flags.StringVar(&c.Installation, "installation", "", "what this plugin belongs to (namespace/release); plugins of two installations do not work on one node")
	addKubeletDir(flags, c)
	flags.StringVar(&c.CDIDir, "cdi-dir", "/var/run/cdi", "folder that the container runtime reads CDI files from")
	flags.StringVar(&c.HostRoot, "host-root", "/host", "where the host's root folder is mounted")
	flags.StringVar(&c.NVIDIADriverRoot, "nvidia-driver-root", "", "folder of the NVIDIA driver on the host; empty: search")
	flags.StringVar(&c.CDIHook, "cdi-hook", "/usr/bin/nvidia-cdi-hook", "program that CDI hooks run; it is copied to the host")
	flags.StringVar(&c.HTTPAddress, "http-address", ":8080", "address of /metrics, /healthz and /readyz")
	flags.BoolVar(&c.IgnoreOtherOwners, "ignore-other-owners", false, "publish GPUs even if a device plugin or another driver serves them")
	flags.BoolVar(&c.AdoptForeign, "adopt-foreign-partitions", false, "remove partitions that Tranche did not make when nobody uses them, instead of leaving them alone")
	flags.StringVar(&c.LegacyResource, "legacy-resource", "", "extended resource that whole NVIDIA GPUs stand for beside their classes (nvidia.com/gpu); empty: none")
	flags.BoolVar(&c.NodeLabels, "node-labels", false, "label the node as NVIDIA's feature discovery does: nvidia.com/gpu.product, .count and .memory")
	flags.StringVar(&c.UninstallOrder, "uninstall-order", "", "ConfigMap (namespace/name) that tells that Tranche is being uninstalled; empty: nothing does")
	flags.StringVar(&c.Simulate, "simulate", "", "inventory of GPUs to simulate; empty: real ones")
	flags.StringToStringVar(&c.SimulateNodes, "simulate-nodes", nil, "inventories of single nodes (node-a=h100x8,node-b=l4x4); beats --simulate")
	flags.StringVar(&c.SimulateDir, "simulate-dir", "/etc/tranche/inventories", "folder with inventories of your own")
	flags.StringVar(&c.SimulateRoot, "simulate-root", "/run/tranche/simulate", "folder of the simulated machine, by the same path here and on the host")
}

func addKubeletDir(flags *pflag.FlagSet, c *node.Config) {
	flags.StringVar(&c.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's folder, by the same path here and on the host")
}
