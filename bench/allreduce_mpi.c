// SPDX-License-Identifier: Apache-2.0
/*
 * All-reduce in MPI, for bench/allreduce_pairs.sh and bench/netns_pairs.sh: float32, sum, in place.
 * Not part of the build.
 *
 *   mpicc -O2 bench/allreduce_mpi.c -o allreduce_mpi && mpirun -np 2 ./allreduce_mpi BATCHES
 *   BATCH_MS BYTES...
 *
 * For each size: one checked call, two warm ones, then BATCHES batches of about BATCH_MS
 * milliseconds. A batch's time per call is that of its slowest rank; the median batch counts. Rank
 * 0 prints one JSON object.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES_MAX = 100, ITERATIONS_MAX = 20000 };

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void all_reduce(float *data, long count)
{
    MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* The sum of rank + i % 7 over ranks; ends the job when it is another. */
static void check(float *data, long count, int rank, int ranks)
{
    for (long i = 0; i < count; i++) {
        data[i] = (float)(rank + i % 7);
    }
    all_reduce(data, count);
    for (long i = 0; i < count; i++) {
        const float wanted = (float)(ranks * (ranks - 1) / 2 + ranks * (i % 7));
        if (data[i] != wanted) {
            fprintf(stderr, "rank %d: element %ld is %g, not %g\n", rank, i, (double)data[i], (double)wanted);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    memset(data, 0, (size_t)count * sizeof *data); /* sums of zeros stay zeros */
}

/* Seconds per call, of the slowest rank. */
static double batch(float *data, long count, int iterations)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = MPI_Wtime();
    for (int i = 0; i < iterations; i++) {
        all_reduce(data, count);
    }
    double seconds = (MPI_Wtime() - begun) / iterations;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

static void measure(long bytes, int batches, double batch_s, int rank, int ranks, const char *separator)
{
    const long count = bytes / (long)sizeof(float);
    float *data = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096);
    if (!data) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    check(data, count, rank, ranks);
    batch(data, count, 2);
    /* the same number on every rank, so is what follows from it */
    const double once = batch(data, count, 3);
    const double wanted = batch_s / once;
    const int iterations = wanted < 1 ? 1 : wanted > ITERATIONS_MAX ? ITERATIONS_MAX : (int)wanted;
    double seconds[BATCHES_MAX];
    for (int i = 0; i < batches; i++) {
        seconds[i] = batch(data, count, iterations);
    }
    qsort(seconds, (size_t)batches, sizeof *seconds, compare);
    if (rank == 0) {
        printf("%s{\"bytes\": %ld, \"us\": %.3f, \"us_min\": %.3f, \"us_max\": %.3f, \"iterations\": %d}",
               separator, bytes, seconds[batches / 2] * 1e6, seconds[0] * 1e6, seconds[batches - 1] * 1e6,
               iterations);
    }
    free(data);
}

int main(int argc, char **argv)
{
    int rank, ranks, length;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    const int batches = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
    const double batch_s = argc > 2 ? strtod(argv[2], NULL) / 1e3 : 0.0;
    if (batches < 1 || batches > BATCHES_MAX || batch_s <= 0.0 || argc < 4) {
        fprintf(stderr, "usage: allreduce_mpi BATCHES BATCH_MS BYTES...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (rank == 0) {
        printf("{\"peer\": \"%s\", \"ranks\": %d, \"results\": [", version, ranks);
    }
    for (int i = 3; i < argc; i++) {
        measure(strtol(argv[i], NULL, 10), batches, batch_s, rank, ranks, i > 3 ? ", " : "");
    }
    if (rank == 0) {
        printf("]}\n");
    }
    MPI_Finalize();
    return 0;
}
