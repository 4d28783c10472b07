// Package inventory keeps what the kubelet plugin knows of its node: GPUs, drivers, the Node object and
// other systems that serve the GPUs.
//
// drivers.go finds the driver of a GPU, and lists all GPUs. open.go opens drivers, expected.go reports
// the drivers that should be open and are not.
//
// gpus.go has the GPUs that were found since the plugin started, with their problems and the
// devices that claims hold and that are gone. roster.go has the GPUs that profiles count, and
// troubles.go the fatal errors that are not over; both outlive the plugin. failures.go has the
// devices that could not be prepared.
//
// node.go watches the plugin's Node object, labels.go writes its labels. watchowners.go and owners.go
// find the other systems that serve the same GPUs, processes.go their programs. runningpods.go finds
// the pods whose processes run.
package inventory
