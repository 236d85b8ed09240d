!> Implicit Euler steps of a stiff reaction network in many zones: each OpenMP thread has a context,
!> a batch and a solver for its zones, forms I/dt - J, factorises once and solves twice.
!>
!>     gfortran -fopenmp PREFIX/include/sparsebatch.f90 zones.f90 $(pkg-config --libs sparsebatch)
program zones
    use, intrinsic :: iso_fortran_env, only: real64, int32, int64
    use sparsebatch
    implicit none
    integer, parameter :: species = 3, entries = 9, nzones = 8000, parts = 4, own = nzones / parts
    integer(int32), parameter :: row_ptr(species + 1) = [1, 4, 7, 10]
    integer(int32), parameter :: col_idx(entries) = [1, 2, 3, 1, 2, 3, 1, 2, 3]
    real(real64), target, allocatable :: jacobian(:, :), dt(:), b(:, :), x(:, :)
    real(real64) :: burnt, largest
    integer :: zone, part, statuses(own), first, last, stat
    integer(int64) :: failed, all_failed
    character(len=200) :: errmsg
    type(sb_context) :: context
    type(sb_batch) :: batch
    type(sb_solver) :: solver
    type(sb_options) :: options

    allocate (jacobian(entries, nzones), dt(nzones), b(species, nzones), x(species, nzones))
    do zone = 1, nzones
        burnt = real(zone, real64) / nzones
        jacobian(:, zone) = robertson([1 - burnt, 2e-5_real64 * (1 - burnt), burnt])
        dt(zone) = 1e-3_real64 * (1 + mod(zone, 100))
        b(:, zone) = [1, 2, 3]
    end do

    all_failed = 0
    options%method = 'lu'
    !$omp parallel do private(context, batch, solver, first, last, failed, statuses) &
    !$omp reduction(+: all_failed)
    do part = 1, parts
        first = (part - 1) * own + 1
        last = part * own
        call context%create(threads=1)
        call batch%uniform(context, own, row_ptr, col_idx)
        call solver%create(batch, jacobian(:, first:last), options)
        call solver%shift(jacobian(:, first:last), dt(first:last))
        call solver%factor()
        call solver%solve(b(:, first:last), x(:, first:last), by=SB_KEPT)
        call solver%solve(b(:, first:last), x(:, first:last), by=SB_KEPT, guess=SB_GUESS_IN_X, &
            nfailed=failed)
        call solver%outcomes(statuses)
        all_failed = all_failed + failed + count(statuses /= 0)
    end do
    !$omp end parallel do

    ! The reactions keep the sum of the concentrations: the columns of J add up to 0.
    largest = maxval(abs(sum(x, dim=1) / dt - 6) / 6)
    print '(i0, a, i0, a, es8.1)', nzones, ' zones, ', all_failed, ' failed, &
        largest relative error of a sum', &
        largest
    if (all_failed > 0 .or. largest > 1e-8) error stop 1

    ! Errors come in stat and errmsg.
    call context%create()
    call batch%uniform(context, nzones, row_ptr, col_idx, index_base=0, stat=stat, errmsg=errmsg)
    if (stat /= SB_ERROR_FORMAT) error stop 2
    print '(2a)', 'an expected error: ', trim(errmsg)
    if (sb_outcome_name(0) /= 'Converged') error stop 3

contains

    !> The Jacobian of Robertson's reactions at the concentrations y, row by row.
    pure function robertson(y) result(values)
        real(real64), intent(in) :: y(species)
        real(real64) :: values(entries)
        real(real64), parameter :: k1 = 0.04_real64, k2 = 3e7_real64, k3 = 1e4_real64
        values = [-k1, k3 * y(3), k3 * y(2), &
            k1, -k3 * y(3) - 2 * k2 * y(2), -k3 * y(2), &
            0.0_real64, 2 * k2 * y(2), 0.0_real64]
    end function
end program
