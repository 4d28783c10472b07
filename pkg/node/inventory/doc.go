// Package inventory keeps what the kubelet plugin knows of the GPUs of its node and of their drivers.
//
// drivers.go finds the driver of a GPU, and lists all GPUs. open.go opens drivers, expected.go reports the drivers that should be open and are not.
//
// gpus.go has the GPUs that were found since the plugin started, with their problems and the
// devices that claims hold and that are gone. roster.go has the GPUs that profiles count, and
// troubles.go the fatal errors that are not over; both outlive the plugin. failures.go has the
// devices that could not be prepared.
package inventory
